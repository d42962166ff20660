"""Metrics of torchmetrics: their values of three batches, and of all of them."""

import torch
import torchmetrics as tm
from numbers_alike import below, filled, normal
from torch import nn
from torchmetrics import classification, image, regression, retrieval, segmentation, text


def _over_batches(metric, *batches):
    """The values of single batches, and of all of them."""
    values = [metric(*batch) for batch in zip(*batches)]
    return [values, metric.compute()]


def _scores(*shape):
    return [normal(*shape, seed=seed).softmax(-1) for seed in range(3)]


def _labels(limit, *shape):
    return [below(limit, *shape, seed=seed + 10) for seed in range(3)]


def _numbers(*shape, first=0):
    return [normal(*shape, seed=first + seed) for seed in range(3)]


def accuracy():
    metric = tm.Accuracy(task="multiclass", num_classes=4, average="macro")
    return _over_batches(metric, _scores(20, 4), _labels(4, 20))


def f1_and_precision_together():
    metrics = tm.MetricCollection(
        [
            classification.MulticlassF1Score(4),
            classification.MulticlassPrecision(4, average="weighted"),
            classification.MulticlassRecall(4, average=None),
        ]
    )
    return _over_batches(metrics, _scores(20, 4), _labels(4, 20))


def area_under_the_curve():
    metric = tm.AUROC(task="multiclass", num_classes=4)
    return _over_batches(metric, _scores(20, 4), _labels(4, 20))


def average_precision_at_thresholds():
    metric = classification.BinaryAveragePrecision(thresholds=20)
    return _over_batches(metric, [x.sigmoid() for x in _numbers(30)], _labels(2, 30))


def confusion_matrix():
    metric = tm.ConfusionMatrix(task="multiclass", num_classes=4, normalize="true")
    return _over_batches(metric, _labels(4, 30), _labels(4, 30)[::-1])


def calibration_error():
    metric = tm.CalibrationError(task="multiclass", num_classes=4, n_bins=5)
    return _over_batches(metric, _scores(20, 4), _labels(4, 20))


def squared_error_and_explained_variance():
    metrics = tm.MetricCollection([tm.MeanSquaredError(), tm.R2Score(), tm.ExplainedVariance()])
    return _over_batches(metrics, _numbers(20), _numbers(20, first=5))


def rank_correlation():
    metrics = [regression.SpearmanCorrCoef(), regression.PearsonCorrCoef()]
    metrics += [regression.KendallRankCorrCoef()]
    return [_over_batches(one, _numbers(20), _numbers(20, first=5)) for one in metrics]


def similarity_of_pictures():
    metrics = [image.StructuralSimilarityIndexMeasure(data_range=1.0)]
    metrics += [image.PeakSignalNoiseRatio(data_range=1.0), image.TotalVariation()]
    pictures = [x.sigmoid() for x in _numbers(2, 3, 24, 24)]
    blurred = [nn.functional.avg_pool2d(x, 3, 1, 1) for x in pictures]
    both = [_over_batches(one, pictures, blurred) for one in metrics[:2]]
    return [*both, _over_batches(metrics[2], pictures)]


def retrieval_at_ranks():
    metrics = [retrieval.RetrievalMAP(), retrieval.RetrievalNormalizedDCG(top_k=3)]
    scores, found = _numbers(24), [x.bool() for x in _labels(2, 24)]
    queries = [below(4, 24, seed=seed) for seed in range(3)]
    return [_over_batches(one, scores, found, queries) for one in metrics]


def words_and_perplexity():
    said = [["the cat sat on a mat"], ["a dog ran"], ["hello there"]]
    meant = [["the cat sat on the mat"], ["the dog ran away"], ["hello there you"]]
    errors = _over_batches(text.WordErrorRate(), said, meant)
    blue = text.BLEUScore(n_gram=2)
    many = [[[line] for line in lines] for lines in meant]
    doubts = _over_batches(text.Perplexity(), _scores(2, 6, 5), _labels(5, 2, 6))
    return [errors, _over_batches(blue, said, many), doubts]


def intersections_of_classes():
    metrics = tm.MetricCollection([tm.JaccardIndex(task="multiclass", num_classes=3)])
    metrics.add_metrics({"dice": segmentation.DiceScore(3, input_format="index")})
    return _over_batches(metrics, _labels(3, 2, 8, 8), _labels(3, 2, 8, 8)[::-1])


def means_trackers_and_minima():
    """Aggregations, a metric over a window, and a tracker of the best epoch."""
    mean, window = tm.MeanMetric(), tm.aggregation.RunningMean(window=2)
    values = _numbers(5)
    tracker = tm.wrappers.MetricTracker(tm.MeanAbsoluteError(), maximize=False)
    for seed in range(3):
        tracker.increment()
        tracker.update(normal(9, seed=seed), normal(9, seed=seed + 4))
    best, step = tracker.best_metric(return_step=True)
    return [_over_batches(mean, values), _over_batches(window, values), best, step]


def a_metric_of_ones_own_is_saved():
    """`add_state`, arithmetic of metrics, and the state in a checkpoint."""

    class Far(tm.Metric):
        def __init__(self):
            super().__init__()
            self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum", persistent=True)
            self.add_state("count", torch.tensor(0), dist_reduce_fx="sum", persistent=True)

        def update(self, left, right):
            self.total += (left - right).norm(dim=-1).sum()
            self.count += left.shape[0]

        def compute(self):
            return self.total / self.count

    metric, other = Far(), Far()
    doubled = metric + metric
    values = _over_batches(metric, _numbers(6, 3), _numbers(6, 3, first=5))
    other.load_state_dict(metric.state_dict())
    other.update(normal(2, 3), normal(2, 3, seed=9))
    return [values, other.compute(), doubled.compute()]


def a_metric_is_a_loss():
    """Gradients go through metrics that can be differentiated."""
    model = filled(nn.Linear(5, 3))
    loss = tm.MeanSquaredError()(model(normal(8, 5)), normal(8, 3, seed=3))
    loss = loss + tm.CosineSimilarity(reduction="mean")(model(normal(8, 5)), normal(8, 3, seed=4))
    loss.backward()
    return [loss, [parameter.grad for parameter in model.parameters()]]
