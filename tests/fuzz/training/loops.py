"""What happens around a model in a random training program, as text."""

from __future__ import annotations

# The text of a loss of `x` and `y`, and what `y` is: numbers, labels, or nothing.
LOSSES: dict[str, tuple[str, str]] = {
    "mse": ("F.mse_loss(x, y)", "numbers"),
    "mse_sum": ("F.mse_loss(x, y, reduction='sum') * 0.1", "numbers"),
    "l1": ("F.l1_loss(x, y)", "numbers"),
    "smooth_l1": ("F.smooth_l1_loss(x, y)", "numbers"),
    "huber": ("F.huber_loss(x, y, delta=0.7)", "numbers"),
    "bce": ("F.binary_cross_entropy(x.sigmoid(), y.sigmoid())", "numbers"),
    "bce_with_logits": ("F.binary_cross_entropy_with_logits(x, y.sigmoid())", "numbers"),
    "cross_entropy": ("F.cross_entropy(x, y)", "labels"),
    "cross_entropy_smooth": ("F.cross_entropy(x, y, label_smoothing=0.1)", "labels"),
    "cross_entropy_soft": ("F.cross_entropy(x, y.softmax(1))", "numbers"),
    "cross_entropy_sum": ("F.cross_entropy(x, y, reduction='none').sum() * 0.3", "labels"),
    "nll": ("F.nll_loss(x.log_softmax(1), y)", "labels"),
    "kl_div": ("F.kl_div(x.log_softmax(1), y.softmax(1), reduction='batchmean')", "numbers"),
    "hinge": ("F.hinge_embedding_loss(x, y.sign())", "numbers"),
    "soft_margin": ("F.soft_margin_loss(x, y.sign())", "numbers"),
    "multi_margin": ("F.multi_margin_loss(x, y)", "labels"),
    "hinge_by_hand": ("(1 - x * y.sign()).clamp(min=0).mean()", "numbers"),
    "cosine": ("F.cosine_embedding_loss(x, y, y.new_ones(y.shape[0]))", "numbers"),
    "cosine_by_hand": ("1 - F.cosine_similarity(x, y, 1).mean()", "numbers"),
    "poisson": ("F.poisson_nll_loss(x.tanh(), y.abs())", "numbers"),
    "gaussian": ("F.gaussian_nll_loss(x, y, (x * 0.3).exp() + 0.2)", "numbers"),
    "squares": ("((x - y) ** 2).mean()", "numbers"),
    "product": ("(x * y).sum() * 0.1", "numbers"),
    "distances": ("(x - y).abs().sum() / x.shape[0]", "numbers"),
    "entropy": ("-(y.softmax(1) * x.log_softmax(1)).sum(1).mean()", "numbers"),
    "root": ("((x - y).square().mean() + 0.1).sqrt()", "numbers"),
    "power": ("x.pow(2).mean()", "nothing"),
    "logsumexp": ("x.logsumexp(1).mean()", "nothing"),
    "mean_of_sums": ("x.sum(1).square().mean() * 0.2", "nothing"),
    "largest": ("x.abs().amax(1).sum() * 0.3", "nothing"),
    "picked": ("x[0].sum() + x[-1].square().mean()", "nothing"),
}

# Steps do not depend on rounding where a gradient is tiny: `eps` is not.
OPTIMIZERS = (
    "SGD(parameters, lr=0.1)",
    "SGD(parameters, lr=0.05, momentum=0.9)",
    "SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "SGD(parameters, lr=0.05, momentum=0.8, dampening=0.2, maximize=True)",
    "Adam(parameters, lr=0.02, eps=1e-2)",
    "Adam(parameters, lr=0.02, eps=1e-2, amsgrad=True, weight_decay=0.01)",
    "AdamW(parameters, lr=0.02, eps=1e-2)",
    "RMSprop(parameters, lr=0.02, eps=1e-2)",
    "RMSprop(parameters, lr=0.02, eps=1e-2, momentum=0.9, centered=True)",
    "Adagrad(parameters, lr=0.05, eps=1e-2)",
    "Adadelta(parameters, lr=0.5, eps=1e-2)",
    "Adamax(parameters, lr=0.02, eps=1e-2)",
    "NAdam(parameters, lr=0.02, eps=1e-2)",
    "RAdam(parameters, lr=0.02, eps=1e-2)",
    "ASGD(parameters, lr=0.05)",
    "SGD([{'params': parameters[:1], 'lr': 0.05}, {'params': parameters[1:]}], lr=0.1)",
    "AdamW([{'params': parameters[::2], 'weight_decay': 0.1}, {'params': parameters[1::2]}], "
    "lr=0.02, eps=1e-2)",
)
SCHEDULERS = (
    "StepLR(optimizer, 1, 0.5)",
    "ExponentialLR(optimizer, 0.9)",
    "CosineAnnealingLR(optimizer, 4)",
    "LambdaLR(optimizer, lambda t: 0.8**t)",
)
# What happens to gradients between `backward` and `step`.
CLIPS = (
    "T.nn.utils.clip_grad_norm_(parameters, 0.5)",
    "T.nn.utils.clip_grad_value_(parameters, 0.1)",
    "T.nn.utils.clip_grad_norm_(parameters, 0.3, norm_type=float('inf'))",
    "for p in parameters:\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
    "for p in parameters:\n"
    "    if p.grad is not None:\n"
    "        p.grad = p.grad / (1 + p.grad.norm())",
    "for p in parameters:\n    if p.grad is not None:\n        p.grad.add_(p.detach(), alpha=0.01)",
)
# Terms of the loss that run the model again, or take a gradient of the gradient; `taken` is the
# input of the model.
TERMS = {
    "slope of a parameter": """\
slope = T.autograd.grad(loss, parameters[-1], create_graph=True)[0]
loss = loss + 0.1 * slope.square().sum()""",
    "slope of all": """\
slopes = T.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
loss = loss + 0.1 * sum(s.square().sum() for s in slopes if s is not None)""",
    "norm of the slope": """\
slope = T.autograd.grad(loss, parameters[0], create_graph=True)[0]
loss = loss + 0.1 * ((slope.square().sum() + 0.1).sqrt() - 1).square()""",
    "slope along a parameter": """\
slope = T.autograd.grad(loss, parameters[0], create_graph=True)[0]
loss = loss + 0.1 * (slope * parameters[0].detach()).sum()""",
    "slope of the input": """\
seen = taken.detach().clone().requires_grad_()
slope = T.autograd.grad(forward(seen, []).sum(), seen, create_graph=True)[0]
loss = loss + 0.1 * slope.square().sum()""",
    "twin": "loss = loss + 0.1 * forward(taken * 0.5, []).square().mean()",
    "teacher": """\
with T.no_grad():
    wanted = forward(taken.flip(0), [])
loss = loss + 0.1 * (forward(taken, []) - wanted).square().mean()""",
    "stopped twin": """\
loss = loss + 0.1 * (forward(taken, []).detach() * forward(taken.flip(0), [])).mean()""",
}
BACKWARDS = (
    "loss.backward(inputs=parameters)",
    "(loss * 2).backward(T.tensor(0.5, dtype=dtype))",
    "T.autograd.backward([loss, loss * 0.5])",
    "loss.backward(create_graph=True)",
    "for p, g in zip(parameters, T.autograd.grad(loss, parameters, allow_unused=True)):\n"
    "    p.grad = g",
)
# What happens once, before the first step.
PREPARATIONS = (
    "parameters[0].register_hook(lambda g: g * 0.5)",
    "parameters[-1].register_hook(lambda g: g.clamp(-0.1, 0.1))",
    "def halve(p):\n    p.grad.mul_(0.5)\nparameters[-1].register_post_accumulate_grad_hook(halve)",
    "modules[0].register_forward_hook(lambda m, given, x: x * 0.9)",
    "modules[-1].register_forward_pre_hook(lambda m, given: (given[0] * 0.9,))",
    "modules[-1].register_full_backward_hook(lambda m, given, arrived: (given[0] * 0.5,))",
)
# What happens behind each step; `t` is its number.
BETWEEN = (
    "modules.load_state_dict(modules.state_dict())",
    "modules.load_state_dict(copy.deepcopy(modules.state_dict()))",
    "modules.load_state_dict(copy.deepcopy(modules).state_dict())",
    "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))",
    "stored = io.BytesIO()\nT.save(modules.state_dict(), stored)\nstored.seek(0)\n"
    "modules.load_state_dict(T.load(stored))",
    "modules.train(t % 2 == 1)",
    "parameters[0].requires_grad_(t % 2 == 1)",
    "with T.no_grad():\n    for p in parameters:\n        p.mul_(0.9)",
    "for p in parameters:\n    p.data = p.data * 0.9",
    "for p in parameters:\n    p.data.clamp_(-0.5, 0.5)",
    "for group in optimizer.param_groups:\n    group['lr'] *= 0.5",
    "optimizer.state.clear()",
    "T.nn.utils.vector_to_parameters(\n"
    "    T.nn.utils.parameters_to_vector(parameters).detach() * 0.9, parameters\n)",
    "average = average if t else copy.deepcopy(modules)\n"
    "with T.no_grad():\n"
    "    for k, (p, q) in enumerate(zip(average.parameters(), modules.parameters())):\n"
    "        found[f'average {t} {k}'] = p.lerp_(q, 0.3).clone()",
)
