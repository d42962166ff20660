"""Names as data: roots, renamed names, changed meanings, and hints for what is absent."""

from __future__ import annotations

# Packages whose names are looked up in metaop; the longest root that fits is taken.
ROOTS = {
    "torch": "metaop",
    "torch.jit": "metaop.scripting",
    "torchvision": "metaop.vision",
    "tensorboardX": "metaop.utils.tensorboard",
}

_IN_PLACE_INITIALISERS = (
    *("constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal"),
    *("sparse", "uniform", "xavier_normal", "xavier_uniform"),
)

RENAMED = {
    **{f"torch.nn.init.{name}": f"metaop.nn.init.{name}_" for name in _IN_PLACE_INITIALISERS},
    "torch.autograd.Variable": "metaop.Tensor",
    "torch.autograd.variable.Variable": "metaop.Tensor",
    "torch.tensor.Tensor": "metaop.Tensor",
    "torch.nn.utils.clip_grad_norm": "metaop.nn.utils.clip_grad_norm_",
    "torch.nn.functional.upsample": "metaop.nn.functional.interpolate",
    "torch.nn.functional.upsample_bilinear": "metaop.nn.functional.interpolate",
    "torch.nn.UpsamplingNearest2d": "metaop.nn.UpsamplingNearest2d",
    "torch.utils.model_zoo.load_url": "metaop.hub.load_state_dict_from_url",
    "torch.utils.data.dataloader.default_collate": "metaop.utils.data.default_collate",
    "torch.utils.data._utils.collate.default_collate": "metaop.utils.data.default_collate",
    "torch.nn.parallel.DataParallel": "metaop.nn.DataParallel",
    "torch.cuda.amp.autocast": "metaop.cuda.amp.autocast",
    "torch.cuda.amp.autocast_mode.autocast": "metaop.cuda.amp.autocast",
    "torch.cuda.amp.grad_scaler.GradScaler": "metaop.cuda.amp.GradScaler",
    "torch.optim.lr_scheduler._LRScheduler": "metaop.optim.lr_scheduler.LRScheduler",
    "torch.__version__": "metaop.version.torch",
    "torch.jit._script_if_tracing": "metaop.scripting.script_if_tracing",
    "torch.distributed.reduce_op": "metaop.distributed.ReduceOp",
    "torch.testing.assert_allclose": "metaop.testing.assert_close",
}

# Where a class may also be named through the module that defines it (`torch.optim.adam.Adam`), and
# the package that has it as well.
PUBLIC_PACKAGES = {
    "torch.autograd": "metaop.autograd",
    "torch.distributions": "metaop.distributions",
    "torch.nn.modules": "metaop.nn",
    "torch.nn.parallel": "metaop.nn.parallel",
    "torch.nn.parameter": "metaop.nn",
    "torch.nn.utils": "metaop.nn.utils",
    "torch.optim": "metaop.optim",
    "torch.utils.data": "metaop.utils.data",
    "torchvision.datasets": "metaop.vision.datasets",
    "torchvision.models": "metaop.vision.models",
    "torchvision.ops": "metaop.vision.ops",
    "torchvision.transforms": "metaop.vision.transforms",
}

# Names that work but mean something else than in PyTorch; a prefix covers what lies in it.
MEANINGS = {
    "torch.__version__": "the version of PyTorch whose interface metaop follows, as a text",
    "torch.backends": "flags are kept and read back; kernels are compiled, so they choose nothing",
    "torch.compile": "returns its argument: everything is compiled already",
    "torch.cuda.amp": "as metaop.amp: low precision in contractions, on every device",
    "torch.cuda.manual_seed": "seeds the one generator that all devices share",
    "torch.cuda.manual_seed_all": "seeds the one generator that all devices share",
    "torch.initial_seed": "same seed, other random numbers than PyTorch's",
    "torch.jit": "nothing is traced or scripted: functions and modules stay as they are",
    "torch.load": "reads tensors and plain containers only, whatever weights_only says",
    "torch.manual_seed": "same seed, other random numbers than PyTorch's",
    "torch.nn.DataParallel": "runs on one device, with the numbers of several",
    "torch.nn.parallel.DataParallel": "runs on one device, with the numbers of several",
    "torch.nn.parallel.DistributedDataParallel": "start the processes with mpirun",
    "torch.save": "writes state_dicts and plain containers; whole modules are refused",
    "torch.set_num_threads": "threads of generated kernels from the next compilation on",
    "torch.use_deterministic_algorithms": "all kernels are deterministic already",
}

ABSENT_HINTS = {
    "torch": "not in metaop",
    "torch._C": "private to PyTorch",
    "torch.ao": "quantisation is not in metaop; quantise the exported weights elsewhere",
    "torch.distributed": "not in metaop.distributed, which has collectives and groups",
    "torch.distributed.rpc": "there are no remote calls; use metaop.distributed",
    "torch.fx": "there is no symbolic tracing; metaop.inspect.graph shows recorded operators",
    "torch.library": "declare an operator with metaop.autograd.Function instead",
    "torch.multiprocessing": "use Python's multiprocessing",
    "torch.nested": "pad to equal lengths and mask",
    "torch.onnx": "save the weights as safetensors instead",
    "torch.profiler": "use metaop.profile",
    "torch.autograd.profiler": "use metaop.profile",
    "torch.quantization": "quantisation is not in metaop",
    "torch.sparse": "use dense tensors, gather and scatter_add",
    "torch.utils.cpp_extension": "write an operator as a composition, or with autograd.Function",
    "torch.utils.ffi": "write an operator as a composition, or with autograd.Function",
    "torch.utils.model_zoo": "download the file and read it with metaop.load",
    "torch.hub": "download the file and read it with metaop.load",
    "torchvision": "not in metaop.vision",
    "torchvision.datasets": "write a metaop.utils.data.Dataset that reads the files",
    "torchvision.models": "copy the module's source and convert it; load weights with metaop.load",
    "tensorboardX": "not in metaop.utils.tensorboard",
}

# Packages that are built on PyTorch.
THIRD_PARTY_HINTS = {
    "accelerate": "devices and loops of PyTorch; write the loop with metaop",
    "apex": "use metaop.amp",
    "dgl": "use gather and scatter_add, or metaop.graph",
    "einops.layers.torch": "use einops.rearrange in forward",
    "fairseq": "built on PyTorch",
    "fastai": "built on PyTorch",
    "fvcore": "built on PyTorch",
    "gpytorch": "built on PyTorch",
    "ignite": "write the training loop with metaop",
    "kornia": "convert the functions that are used",
    "lightning": "write the training loop with metaop",
    "mmcv": "built on PyTorch",
    "monai": "built on PyTorch",
    "peft": "built on PyTorch",
    "pytorch3d": "built on PyTorch",
    "pytorch_lightning": "write the training loop with metaop",
    "pytorch_msssim": "convert its source",
    "safetensors.torch": "metaop.save and metaop.load read and write .safetensors",
    "segmentation_models_pytorch": "convert its source",
    "sentence_transformers": "built on PyTorch",
    "timm": "convert the source of the model",
    "torch_geometric": "use gather and scatter_add, or metaop.graph",
    "torch_scatter": "use Tensor.scatter_add and scatter_reduce",
    "torch_sparse": "use dense tensors, gather and scatter_add",
    "torchaudio": "convert its source",
    "torchmetrics": "convert its source",
    "torchsummary": "print the module",
    "torchtext": "read the files with Python",
    "torchvision": "not in metaop.vision",
    "transformers": "built on PyTorch; its weights can be read with metaop.load",
    "visdom": "reads NumPy arrays: pass tensor.numpy()",
}

# Packages that know nothing of PyTorch, or take NumPy arrays from any library.
NEUTRAL_PACKAGES = frozenset(
    (
        *("PIL", "absl", "attr", "click", "cv2", "einops", "gym", "gymnasium", "h5py", "hydra"),
        *("imageio", "joblib", "lmdb", "matplotlib", "metaop", "networkx", "nltk", "numba"),
        *("numpy", "omegaconf", "pandas", "plotly", "psutil", "pycocotools", "pytest", "regex"),
        *("requests", "rich", "safetensors", "scipy", "seaborn", "sentencepiece", "six"),
        *("skimage", "sklearn", "soundfile", "spacy", "sympy", "tabulate", "termcolor"),
        *("tokenizers", "tqdm", "typing_extensions", "wandb", "yaml"),
    )
)
