/* Many small launches on the thread pool, by functions that the C compiler of the system has made:
   its calls and those of the pool have to agree. Ends with 0 if each task ran once a launch. */
#include <stdint.h>
#include <stdio.h>
#ifdef _WIN32
#include <windows.h>
#define GIVE_WAY() SwitchToThread()
#else
#include <sched.h>
#define GIVE_WAY() sched_yield()
#endif

enum { ROUNDS = 10000, TASKS = 500 };

typedef void kernel(void **buffers, int64_t *scalars, int64_t begin, int64_t end, int64_t *error);

struct step {
    kernel *kernel;
    int32_t *slots;
    int64_t count;
    int64_t *scalars;
    int64_t tasks, grain;
};

extern int64_t metaop_run(struct step *, int64_t, void **, int64_t *, int64_t *);
extern void metaop_start(void);
extern void metaop_set_threads(int64_t);

static int64_t counts[TASKS], met;

static void add(void **buffers, int64_t *scalars, int64_t begin, int64_t end, int64_t *error) {
    int64_t *place = buffers[0];
    for (int64_t task = begin; task < end; task++) place[task] += scalars[0];
    (void)error;
}

/* Comes back when two participants have come. */
static void meet(void **buffers, int64_t *scalars, int64_t begin, int64_t end, int64_t *error) {
    int64_t *place = buffers[0];
    __atomic_add_fetch(place, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(place, __ATOMIC_SEQ_CST) < 2) GIVE_WAY();
    (void)scalars, (void)begin, (void)end, (void)error;
}

int main(void) {
    int32_t first = 0, second = 1;
    int64_t amount = 3, error[4] = {0}, times[3];
    void *slots[2] = {counts, &met};
    struct step steps[2] = {
        {add, &first, 1, &amount, TASKS, 7},
        {meet, &second, 1, &amount, 2, 1},
    };
    metaop_start();
    for (int64_t round = 0; round < ROUNDS; round++) {
        metaop_set_threads(2 + round % 4);
        met = 0;
        if (metaop_run(steps, 2, slots, error, times) || error[0]) return 1;
        if (met != 2 || !(0 < times[0] && times[0] <= times[1] && times[1] <= times[2])) return 2;
    }
    for (int task = 0; task < TASKS; task++)
        if (counts[task] != 3 * ROUNDS) return 3;
    printf("%d launches\n", 2 * ROUNDS);
    return 0;
}
