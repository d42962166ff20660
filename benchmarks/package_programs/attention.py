"""Transformers as the documents of vit_pytorch, x_transformers and their kin have them."""

import torch
from numbers_alike import below, filled, normal
from torch import nn
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize
from vit_pytorch import ViT, cait, na_vit, nest, pit, t2t
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    XTransformer,
)


def _steps(network, loss, count=2):
    """The losses of a few steps."""
    optimizer, losses = torch.optim.SGD(filled(network).parameters(), lr=1e-2), []
    for _ in range(count):
        optimizer.zero_grad()
        losses.append(loss())
        losses[-1].backward()
        optimizer.step()
    return losses


def _classifies(network):
    pictures, classes = normal(2, 3, 32, 32), torch.tensor([1, 2])
    return _steps(network, lambda: nn.functional.cross_entropy(network(pictures), classes))


def sees():
    """Plain patches, deep stacks, soft splits, stages, and pictures of several sizes at once."""
    sizes = {"image_size": 32, "num_classes": 5, "dim": 16, "heads": 2}
    packed = na_vit.NaViT(**sizes, patch_size=8, depth=1, mlp_dim=32, token_dropout_prob=None)
    pictures = [[normal(3, 32, 32), normal(3, 16, 24)], [normal(3, 24, 8), normal(3, 32, 16)]]
    splits = ((7, 4), (3, 2))
    return [
        _classifies(ViT(**sizes, patch_size=8, depth=2, mlp_dim=32)),
        _classifies(cait.CaiT(**sizes, patch_size=8, depth=2, cls_depth=1, mlp_dim=32)),
        _classifies(t2t.T2TViT(**sizes, depth=2, t2t_layers=splits, mlp_dim=32)),
        _classifies(pit.PiT(**sizes, patch_size=4, depth=(1, 1), mlp_dim=32)),
        _classifies(nest.NesT(**sizes, patch_size=4, num_hierarchies=2, block_repeats=1)),
        _steps(packed, lambda: packed(pictures).square().mean()),
    ]


def writes():
    """Decoders with one position code, gate, norm or head after the other."""
    words = below(20, 2, 12)
    variants = [
        {"rotary_pos_emb": True, "ff_glu": True, "use_rmsnorm": True},
        {"alibi_pos_bias": True, "attn_kv_heads": 1},
        {"rel_pos_bias": True, "macaron": True},
        {"dynamic_pos_bias": True, "residual_attn": True},
        {"attn_qk_norm": True, "sandwich_norm": True},
        {"attn_num_mem_kv": 2, "attn_gate_values": True},
        {"shift_tokens": 1, "gate_residual": True},
        {"rotary_xpos": True, "attn_sparse_topk": 4},
    ]
    made = []
    for options in variants:
        layers = Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, **options)
        network = TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)
        made += _steps(
            network, lambda n=network: nn.functional.cross_entropy(n(words).mT, words), count=1
        )
    return made


def writes_on():
    """Text that goes on, with and without what earlier words have left."""
    layers = Decoder(dim=16, depth=2, heads=2, rotary_pos_emb=True)
    network = TransformerWrapper(num_tokens=20, max_seq_len=24, attn_layers=layers)
    network, start = filled(AutoregressiveWrapper(network)).eval(), below(20, 2, 5)
    kept = [network.generate(start, 12, temperature=0.0, cache_kv=flag) for flag in (True, False)]
    return [kept, network(start)]


def reads():
    """An encoder before a decoder, and an encoder of numbers under a mask."""
    sizes = {"num_tokens": 20, "depth": 1, "heads": 2, "max_seq_len": 12}
    sides = {f"{side}_{name}": size for side in ("enc", "dec") for name, size in sizes.items()}
    pair, words = XTransformer(dim=16, tie_token_emb=True, **sides), below(20, 2, 10)
    layers = Encoder(dim=16, depth=1, heads=2)
    reader = ContinuousTransformerWrapper(dim_in=6, dim_out=3, max_seq_len=12, attn_layers=layers)
    numbers, mask = normal(2, 12, 6), torch.arange(12) < torch.tensor([[8], [12]])
    return [
        _steps(pair, lambda: pair(words, words.flip(1), mask=torch.ones(2, 10).bool())),
        _steps(reader, lambda: reader(numbers, mask=mask).square().mean()),
    ]


def _with_codes(network):
    """A network whose codes, which are no parameters, are the same everywhere."""
    for name, buffer in filled(network).named_buffers():
        if name.endswith(("embed", "embed_avg")):
            buffer.copy_(normal(*buffer.shape))
    return network


def quantises():
    """Codes that follow what they stand for, several in a row, and codes that are a grid."""
    x, shared = normal(2, 12, 8), {"use_cosine_sim": True, "codebook_dim": 4, "heads": 2}
    moving = _with_codes(VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0))
    made = [list(moving(x * scale)) for scale in (1.0, 0.9)]
    made += _with_codes(VectorQuantize(8, 16, **shared)).eval()(x)
    made += _with_codes(ResidualVQ(dim=8, num_quantizers=3, codebook_size=16)).eval()(x)
    grid = filled(FSQ([5, 4, 3], dim=8))
    codes = grid(x)[1]
    return [*made, codes, grid.indices_to_codes(codes)]
