"""Tables of names: roots, renamed names, changed meanings, and hints for missing ones."""

from __future__ import annotations

from metaop import version

# Packages whose names are looked up in metaop; the longest matching root applies.
ROOTS = {
    "torch": "metaop",
    "torch.jit": "metaop.scripting",
    "torch.jit.annotations": "typing",
    "torch.autograd.profiler": "metaop.profiler",
    "torch._dynamo": "metaop.compiler",
    "torchvision": "metaop.vision",
    "tensorboardX": "metaop.utils.tensorboard",
    "einops": "metaop.einops",
    "einops.einops": "metaop.einops",
    "einops.layers.torch": "metaop.einops",
    "safetensors": "metaop.serialization.safetensors",
    "safetensors.torch": "metaop.serialization.safetensors",
    "safetensors.numpy": "safetensors.numpy",
}

# The module that looks names up at run time.
PACKAGES = "metaop.convert.packages"

# The releases whose names metaop follows, for programs that ask for a distribution's.
FOLLOWED = {"torchvision": version.torchvision}

# Modules that need a package to be usable, though not to be imported.
NEEDED = {"metaop.utils.tensorboard": "tensorboard"}

_IN_PLACE_INITIALISERS = (
    *("constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal"),
    *("sparse", "uniform", "xavier_normal", "xavier_uniform"),
)

# Those that PyTorch writes once more without gradients, for its own use and that of copies.
_WITHOUT_GRADIENTS = ("normal_", "trunc_normal_", "uniform_")

# Private switches of what PyTorch's scripts and traces are compiled with.
_TRACER_SWITCHES = (
    *("_jit_override_can_fuse_on_cpu", "_jit_override_can_fuse_on_gpu", "_jit_set_nvfuser_enabled"),
    *("_jit_set_profiling_executor", "_jit_set_profiling_mode", "_jit_set_texpr_fuser_enabled"),
)

# Private helpers that copies of PyTorch's optimizers import.
_OPTIMIZER_HELPERS = {
    "torch.utils._foreach_utils._group_tensors_by_device_and_dtype": "group_tensors",
    "torch.utils._foreach_utils._get_foreach_kernels_supported_devices": "supported_devices",
    "torch.utils._foreach_utils._get_fused_kernels_supported_devices": "supported_devices",
    "torch.optim.optimizer._default_to_fused_or_foreach": "choose_kernels",
    "torch.optim.optimizer._disable_dynamo_if_unsupported": "no_compilation",
    "torch.optim.optimizer._dispatch_sqrt": "square_root",
    "torch.optim.optimizer._get_capturable_supported_devices": "supported_devices",
    "torch.optim.optimizer._get_scalar_dtype": "dtype_of_steps",
    "torch.optim.optimizer._get_value": "number_of",
    "torch.optim.optimizer._stack_if_compiling": "unchanged",
    "torch.optim.optimizer._to_scalar": "without_axes",
    "torch.optim.optimizer._use_grad_for_differentiable": "use_grad_if_differentiable",
    "torch.optim.optimizer._view_as_real": "as_real",
}

RENAMED = {
    **{path: f"metaop.optim.helpers.{name}" for path, name in _OPTIMIZER_HELPERS.items()},
    **{f"torch.nn.init.{name}": f"metaop.nn.init.{name}_" for name in _IN_PLACE_INITIALISERS},
    **{f"torch.nn.init._no_grad_{name}": f"metaop.nn.init.{name}" for name in _WITHOUT_GRADIENTS},
    "torch.nn.init._no_grad_fill_": "metaop.nn.init.constant_",
    "torch.nn.init._no_grad_zero_": "metaop.nn.init.zeros_",
    **{f"torch._C.{name}": "metaop.scripting._set_optimization" for name in _TRACER_SWITCHES},
    "torch.tensor.Tensor": "metaop.Tensor",
    "torch.compiler.compile": "metaop.compile",
    "torch.torch": "metaop",
    "torch.nn.modules.module._IncompatibleKeys": "metaop.nn.module_state.IncompatibleKeys",
    "torch._standard_gamma": "metaop.distributions.gamma_samples.standard_gamma",
    "torch._vmap_internals._vmap": "metaop.func.vmap",
    "torch.distributions.transforms._InverseTransform": (
        "metaop.distributions.transforms.transform._InverseTransform"
    ),
    "torch.distributions.utils._standard_normal": "metaop.distributions.utils.standard_normal",
    "torch.distributions.utils._sum_rightmost": "metaop.distributions.utils.sum_rightmost",
    "torch.nn.utils.stateless._reparametrize_module": "metaop.nn.utils.stateless.reparametrised",
    "torch.nn.utils.clip_grad_norm": "metaop.nn.utils.clip_grad_norm_",
    "torch.nn.functional.upsample": "metaop.nn.functional.interpolate",
    "torch.nn.functional.upsample_bilinear": "metaop.nn.functional.interpolate",
    "torch.nn.UpsamplingNearest2d": "metaop.nn.UpsamplingNearest2d",
    "torch.utils.model_zoo.load_url": "metaop.hub.load_state_dict_from_url",
    "torch.utils.data.dataloader.default_collate": "metaop.utils.data.default_collate",
    "torch.utils.data._utils.collate": "metaop.data.collate",
    "torch.nn.parallel.DataParallel": "metaop.nn.DataParallel",
    "torch.cuda.amp.autocast": "metaop.cuda.amp.autocast",
    "torch.cuda.amp.autocast_mode.autocast": "metaop.cuda.amp.autocast",
    "torch.cuda.amp.grad_scaler.GradScaler": "metaop.cuda.amp.GradScaler",
    "torch.optim.lr_scheduler._LRScheduler": "metaop.optim.lr_scheduler.LRScheduler",
    "torch.__version__": "metaop.version.torch",
    "torch._dynamo.mark_dynamic": "metaop.mark_dynamic",
    "torch._dynamo.mark_static": "metaop.mark_static",
    "torch._dynamo.maybe_mark_dynamic": "metaop.mark_dynamic",
    "torch._dynamo.config": "metaop.backends.dynamo",
    "torch._inductor.config": "metaop.backends.inductor",
    "torch._logging.set_logs": "metaop.environment._set_logs",
    "torch.autograd.function.FunctionCtx": "metaop.autograd.function.Context",
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": "metaop.scripting._get_tracing_state",
    "torch._subclasses.fake_tensor.is_fake": "metaop.scripting._is_fake",
    "torch.jit._script_if_tracing": "metaop.scripting.script_if_tracing",
    "torch.quantization": "metaop.ao.quantization",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper": (
        "metaop.distributed.checkpoint_wrapper"
    ),
    "torch.distributed.checkpoint.state_dict": "metaop.distributed.state_dict",
    "torch.distributed._composable.fsdp": "metaop.distributed.fsdp",
    "torch.distributed.fsdp.api": "metaop.distributed.fsdp",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "metaop.distributed.fsdp",
    "torch.distributed.fsdp.wrap": "metaop.distributed.wrapping",
    "torch.distributed._tensor": "metaop.distributed.tensor",
    "torch.distributed.tensor.device_mesh": "metaop.distributed.device_mesh",
    "torch.distributed.reduce_op": "metaop.distributed.ReduceOp",
    "torch.testing.assert_allclose": "metaop.testing.assert_close",
    "torch.ops.torchvision.nms": "metaop.vision.ops.nms",
    "torch._C._are_functorch_transforms_active": "metaop.scripting._are_transforms_active",
    "torch._C.DisableTorchFunction": "metaop.overrides.DisableTorchFunctionSubclass",
    "torch._C.DisableTorchFunctionSubclass": "metaop.overrides.DisableTorchFunctionSubclass",
    "torch._C._disabled_torch_function_impl": "metaop.overrides._disabled_torch_function_impl",
    "torch._C._get_tracing_state": "metaop.scripting._get_tracing_state",
    "torch._C._is_tracing": "metaop.scripting.is_tracing",
    "torch._C._log_api_usage_once": "metaop.environment._log_api_usage_once",
    "torch._C._nn._parse_to": "metaop.nn.module_conversion.parse_to",
    "torchvision.models._utils.IntermediateLayerGetter": (
        "metaop.vision.models.IntermediateLayerGetter"
    ),
    "torchvision.models.utils.load_state_dict_from_url": "metaop.hub.load_state_dict_from_url",
    "torchvision._internally_replaced_utils.load_state_dict_from_url": (
        "metaop.hub.load_state_dict_from_url"
    ),
    "torchvision.transforms.Scale": "metaop.vision.transforms.Resize",
    "torchvision.transforms.RandomSizedCrop": "metaop.vision.transforms.RandomResizedCrop",
    "torchvision.transforms.functional_tensor": "metaop.vision.transforms.functional",
    "torchvision.transforms.functional_pil": "metaop.vision.transforms.functional",
}

# Keywords that a function had in old releases, or has in another package, with their current names.
OLD_KEYWORDS: dict[str, dict[str, str]] = {
    "tensorboardX.SummaryWriter": {"logdir": "log_dir"},
    "torchvision.utils.make_grid": {"range": "value_range"},
    "torchvision.utils.save_image": {"range": "value_range"},
    "torchvision.transforms.RandomRotation": {"resample": "interpolation"},
    "torchvision.transforms.RandomAffine": {"resample": "interpolation", "fillcolor": "fill"},
    "torchvision.transforms.functional.rotate": {"resample": "interpolation"},
    "torchvision.transforms.functional.affine": {
        "resample": "interpolation",
        "fillcolor": "fill",
    },
}

# Modules through which classes may be named too (`torch.optim.adam.Adam`), with the packages that
# export them.
PUBLIC_PACKAGES = {
    "torch.autograd": "metaop.autograd",
    "torch.distributed._tensor": "metaop.distributed.tensor",
    "torch.distributed.tensor": "metaop.distributed.tensor",
    "torch.distributed.tensor.parallel": "metaop.distributed.tensor.parallel",
    "torch.distributions": "metaop.distributions",
    "torch.functional": "metaop",
    "torch.nn.modules": "metaop.nn",
    "torch.nn.parallel": "metaop.nn.parallel",
    "torch.nn.parameter": "metaop.nn",
    "torch.nn.utils": "metaop.nn.utils",
    "torch.optim": "metaop.optim",
    "torch.utils.data": "metaop.utils.data",
    "torch.utils.tensorboard": "metaop.utils.tensorboard",
    "tensorboardX": "metaop.utils.tensorboard",
    "torchvision.datasets": "metaop.vision.datasets",
    "torchvision.models": "metaop.vision.models",
    "torchvision.ops": "metaop.vision.ops",
    "torchvision.transforms": "metaop.vision.transforms",
    "torchvision.utils": "metaop.vision.utils",
}

# What programs register at run time, and the names below that are PyTorch's own.
REGISTRY = "torch.ops"
PYTORCHS_OPERATORS = frozenset(
    (
        *("_c10d_functional", "_quantized", "aten", "c10d", "export", "higher_order", "image"),
        *("import_module", "inductor", "load_library", "loaded_libraries", "mkl", "mkldnn"),
        *("onednn", "prim", "prims", "profiler", "quantized", "sparse", "torchaudio"),
        *("torchvision", "video"),
    )
)

# Packages whose functions PyTorch writes in C: as attributes of a class they are no methods.
PACKAGES_IN_C = ("torch", "torch.fft", "torch.linalg", "torch.sparse", "torch.special")

# The functions of these packages that PyTorch writes in Python.
FUNCTIONS_IN_PYTHON = frozenset(
    (
        *("torch.atleast_1d", "torch.atleast_2d", "torch.atleast_3d", "torch.block_diag"),
        *("torch.broadcast_shapes", "torch.broadcast_tensors", "torch.cartesian_prod"),
        *("torch.cdist", "torch.chain_matmul", "torch.compile", "torch.cond", "torch.einsum"),
        *("torch.is_storage", "torch.is_tensor", "torch.load", "torch.lu", "torch.manual_seed"),
        *("torch.matrix_rank", "torch.meshgrid", "torch.norm", "torch.pca_lowrank", "torch.save"),
        *("torch.seed", "torch.set_default_device", "torch.set_default_dtype"),
        *("torch.set_default_tensor_type", "torch.set_printoptions", "torch.set_rng_state"),
        *("torch.sparse.sum", "torch.split", "torch.stft", "torch.svd_lowrank", "torch.tensordot"),
        *("torch.typename", "torch.unique", "torch.unique_consecutive", "torch.unravel_index"),
        *("torch.use_deterministic_algorithms", "torch.vmap", "torch.while_loop"),
        *("torch.are_deterministic_algorithms_enabled", "torch.from_dlpack"),
        *("torch.get_default_device", "torch.get_deterministic_debug_mode"),
        *("torch.get_device_module", "torch.get_float32_matmul_precision", "torch.get_rng_state"),
        *("torch.initial_seed", "torch.is_deterministic_algorithms_warn_only_enabled"),
        *("torch.is_warn_always_enabled", "torch.set_deterministic_debug_mode"),
        *("torch.set_float32_matmul_precision", "torch.set_warn_always", "torch.sym_float"),
        *("torch.sym_int", "torch.sym_ite", "torch.sym_max", "torch.sym_min", "torch.sym_not"),
        *("torch.sym_sqrt", "torch.sym_sum"),
    )
)

# The functions of `torch.nn.functional` that PyTorch writes in C.
FUNCTIONALS_IN_C = frozenset(
    (
        *("adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_"),
        *("channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d"),
        *("conv_transpose2d", "conv_transpose3d", "cosine_similarity", "elu_", "gelu"),
        *("hardshrink", "hardtanh_", "leaky_relu_", "linear", "logsigmoid"),
        *("native_channel_shuffle", "one_hot", "pairwise_distance", "pdist", "pixel_shuffle"),
        *("pixel_unshuffle", "prelu", "relu_", "rrelu_", "scaled_dot_product_attention", "selu_"),
        *("softplus", "softshrink", "threshold_"),
    )
)

# Names that work but have another meaning than in PyTorch; a prefix covers everything below it.
MEANINGS = {
    "torch.__version__": "the version of PyTorch whose interface metaop follows, as a string",
    "torch.backends": "flags are kept and read back; kernels are compiled, so they choose nothing",
    "torch.compile": "returns its argument: everything is compiled already",
    "torch.cuda.CUDAGraph": "cannot be made: repeated steps become graphs by themselves",
    "torch.cuda.graph": "cannot be entered: repeated steps become graphs by themselves",
    "torch.cuda.make_graphed_callables": "returns its argument: repeated steps become graphs",
    "torch.cuda.amp": "as metaop.amp: low precision in contractions, on every device",
    "torch.cuda.manual_seed": "seeds the one generator that all devices share",
    "torch.cuda.manual_seed_all": "seeds the one generator that all devices share",
    "torch.distributed.tensor.DTensor": "any global tensor; to_local() gives a copy",
    "torch.initial_seed": "same seed, other random numbers than PyTorch's",
    "torch.jit": "modules and functions run as they are; save and load are for metaop's programs",
    "torch.load": "whole modules are read with weights_only=False, if metaop has saved them",
    "torch.manual_seed": "same seed, other random numbers than PyTorch's",
    "torch.nn.DataParallel": "runs on one device, with the results of several",
    "torch.nn.parallel.DataParallel": "runs on one device, with the results of several",
    "torch.nn.parallel.DistributedDataParallel": "start the processes with mpirun",
    "torch.save": "whole modules are written by the name of their class; PyTorch cannot read those",
    "torch.set_num_threads": "threads of generated kernels, from the next kernel on",
    "torch.use_deterministic_algorithms": "all kernels are deterministic, except CUDA scatters",
    "torchvision.__version__": "the release of torchvision whose names metaop.vision has",
    "torchvision.datasets": "reads local files; download=True says where to get them",
    # These never download anything.
    **dict.fromkeys(
        (
            *("torchvision.datasets.FakeData", "torchvision.datasets.ImageFolder"),
            *("torchvision.datasets.DatasetFolder", "torchvision.datasets.folder"),
            *("torchvision.datasets.CocoDetection", "torchvision.datasets.VisionDataset"),
        ),
        "",
    ),
    "torchvision.transforms.v2": "transforms images; boxes and masks beside them stay as they are",
}

ABSENT_HINTS = {
    "torch": "not in metaop",
    "torch._C": "private to PyTorch",
    "torch.ao": "metaop.ao.quantization has PyTorch's eager mode, without quantised tensors",
    "torch.distributed": "not in metaop.distributed, which has collectives and groups",
    "torch.distributed.tensor": "metaop.distributed.tensor has DTensor, placements and styles",
    "torch.distributed.rpc": "remote calls are not supported; use metaop.distributed",
    "torch.fx": "metaop.fx traces, edits and interprets; it has none of PyTorch's passes",
    "torch.library": "metaop.library has custom_op, and what registers its parts",
    "torch.multiprocessing": "use Python's multiprocessing",
    "torch.nested": "pad to equal lengths and mask",
    "torch.onnx": "metaop.onnx has export and load; operators are expanded, not registered",
    "torch.ops": "metaop.ops has what the program registers; for others, call functions or methods",
    "torch.profiler": "use metaop.profile",
    "torch.autograd.profiler": "use metaop.profile",
    "torch.sparse": "metaop.sparse has mm, addmm, sum and softmax of coordinates and rows",
    "torch.utils.cpp_extension": "write an operator as a composition, or with autograd.Function",
    "torch.utils.ffi": "write an operator as a composition, or with autograd.Function",
    "torch.utils.model_zoo": "download the file and read it with metaop.load",
    "torch.hub": "download the file and read it with metaop.load",
    "torchvision": "not in metaop.vision",
    "torchvision.datasets": "write a metaop.utils.data.Dataset that reads the files",
    "torchvision.io": "metaop.vision.io reads and writes images, not videos",
    "torchvision.models": "copy the module's source and convert it; load weights with metaop.load",
    "torchvision.models.detection": "write the detector with metaop.vision.ops and a backbone",
    "torchvision.models.segmentation": "copy the module's source and convert it",
    "torchvision.ops": "compose it from tensor functions",
    "torchvision.transforms": "write it with metaop.vision.transforms.functional",
    "torchvision.tv_tensors": "pass boxes and masks as tensors",
    "einops": "pip install einops: metaop.einops needs it",
    "einops.layers": "metaop.einops has Rearrange, Reduce and EinMix",
    "tensorboardX": "not in metaop.utils.tensorboard",
}

# Packages that are built on PyTorch.
THIRD_PARTY_HINTS = {
    **{
        name: f"convert the package: metaop convert {name} -o folder/{name}"
        for name in (
            *("accelerate", "lightning", "lightning_fabric", "lightning_utilities"),
            *("pytorch_lightning", "timm", "torch_geometric", "torchmetrics", "transformers"),
        )
    },
    "apex": "use metaop.amp",
    "dgl": "use gather and scatter_add, or metaop.graph",
    "fairseq": "built on PyTorch",
    "fastai": "built on PyTorch",
    "fvcore": "built on PyTorch",
    "gpytorch": "built on PyTorch",
    "ignite": "write the training loop with metaop",
    "kornia": "convert the functions that are used",
    "mmcv": "built on PyTorch",
    "monai": "built on PyTorch",
    "peft": "built on PyTorch",
    "pytorch3d": "built on PyTorch",
    "pytorch_msssim": "convert its source",
    "segmentation_models_pytorch": "convert its source",
    "sentence_transformers": "built on PyTorch",
    "torch_scatter": "use Tensor.scatter_add and scatter_reduce",
    "torch_sparse": "use metaop.sparse_coo_tensor and metaop.sparse.mm",
    "torchaudio": "convert its source",
    "torchsummary": "print the module",
    "torchtext": "read the files with Python",
    "visdom": "reads NumPy arrays: pass tensor.numpy()",
}

# Packages that know nothing of PyTorch, or take NumPy arrays from any library.
NEUTRAL_PACKAGES = frozenset(
    (
        *("PIL", "absl", "attr", "click", "cv2", "datasets", "gym", "gymnasium", "h5py", "hydra"),
        *("imageio", "joblib", "lmdb", "matplotlib", "metaop", "networkx", "nltk", "numba"),
        *("numpy", "omegaconf", "pandas", "plotly", "psutil", "pycocotools", "pytest", "regex"),
        *("requests", "rich", "scipy", "seaborn", "sentencepiece", "six"),
        *("skimage", "sklearn", "soundfile", "spacy", "sympy", "tabulate", "tensorboard"),
        *("termcolor",),
        *("tokenizers", "tqdm", "typing_extensions", "wandb", "yaml"),
    )
)
