"""Names of the census that metaop has not, each with the reason.

A name that is added to metaop has to leave this table: the tests say so.
"""

from __future__ import annotations

_QUANTISED = "quantised tensors are not supported"
_STORAGE = "a storage belongs to a tensor; make the tensor"

MISSING: dict[str, str] = {
    "Tensor.int_repr": _QUANTISED,
    "Tensor.q_scale": _QUANTISED,
    "Tensor.q_zero_point": _QUANTISED,
    "torch._make_per_tensor_quantized_tensor": _QUANTISED,
    "torch.jagged": "nested tensors are not supported",
    "torch.nested.nested_tensor": "nested tensors are not supported",
    "torch.FloatStorage": _STORAGE,
    "torch.LongStorage": _STORAGE,
    "torch.ByteStorage.from_buffer": _STORAGE,
    "torch.utils.cpp_extension": "C++ extensions build against PyTorch's library",
    "torch.utils.mobile_optimizer": "a tool for TorchScript on phones",
    "torch.utils.serialization": "a private configuration of PyTorch's files",
    "Tensor.index": "PyTorch's private spelling of tensor[indices]",
    "torch._sample_dirichlet": "a private kernel; use metaop.distributions.Dirichlet",
}

# Where the documentation, or the private default of a C++ function, differs on purpose.
SIGNATURES: dict[str, str] = {
    "torch.nn.parallel.DistributedDataParallel": "options of buckets and process groups",
    "Tensor.type_as": "documented as tensor, but the parameter is called other",
    "Tensor.split": "documented as split_size, but the parameter is called split_size",
    "Tensor.topk": "the documented default None means -1",
    "torch.topk": "the documented default None means -1",
    "Tensor.mul": "documented as value, but the parameter is called other",
    "Tensor.mul_": "documented as value, but the parameter is called other",
    "Tensor.div": "documented as value, but the parameter is called other",
    "Tensor.div_": "documented as value, but the parameter is called other",
    "Tensor.std": "correction=None means 1, and lets unbiased= decide",
    "torch.std_mean": "correction=None means 1, and lets unbiased= decide",
    "torch.var": "correction=None means 1, and lets unbiased= decide",
    "torch.compile": "options of PyTorch's compiler; everything is compiled here",
    "torch.cuda.is_bf16_supported": "nothing is emulated",
    "Tensor.bmm": "documented as batch2, but the parameter is called mat2",
    "Tensor.matmul": "documented as tensor2, but the parameter is called other",
    "Tensor.narrow": "documented as dimension, but the parameter is called dim",
    "Tensor.amax": "the documented default None is ()",
    "Tensor.amin": "the documented default None is ()",
    "Tensor.resize_as_": "documented as tensor, but the parameter is called the_template",
    "torch.profiler.tensorboard_trace_handler": "an option of PyTorch's own trace export",
    "torch.trapezoid": "the documented default None means 1",
    "Tensor.fmod_": "documented as divisor, but the parameter is called other",
    "torch.hub.load_state_dict_from_url": "what was downloaded runs code only if the user says so",
}

# Parts of PyTorch that are no part of the surface: its tracers, exporters and private packages.
INTERNALS = (
    *("_C", "_custom_ops", "_dynamo", "_export", "_functorch", "_inductor", "_ops", "_prims"),
    *("ao", "classes", "distributed", "export", "fx", "jit", "library", "onnx", "ops"),
    *("quantization", "autograd.grad_mode", "_subclasses", "_higher_order_ops"),
)
