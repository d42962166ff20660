"""Whisper: an audio encoder, from samples to a vector for every 20 milliseconds.

After A. Radford and others, "Robust speech recognition via large-scale weak supervision", 2022.
Parameters have the names of Hugging Face, so the encoder of published weights loads. The
demonstration classifies noisy tones that rise, fall, stay or tremble.

    python -m models.whisper --steps 150 --checkpoint runs/whisper.pth
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update
from .published import adopt, read_config, read_weights

RATE, WINDOW, HOP = 16000, 400, 160  # samples per second, per window, and between windows


def mel_filters(bands: int) -> np.ndarray:
    """The mel filterbank (bands, WINDOW // 2 + 1), float32.

    Filters are triangles of area 1, equally spaced on the mel scale: linear up to 1000 Hz, then
    logarithmic. After M. Slaney, "Auditory toolbox", 1998.
    """
    step, ratio = 200 / 3, math.log(6.4) / 27
    highest = 15 + math.log(RATE / 2 / 1000) / ratio
    mels = np.linspace(0, highest, bands + 2)
    edges = np.where(mels < 15, mels * step, 1000 * np.exp(ratio * (mels - 15)))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    low, middle, high = (edges[start : start + bands, None] for start in range(3))
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    heard = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return heard.astype(np.float32)


def log_mel(samples: metaop.Tensor, bands: int = 80) -> metaop.Tensor:
    """Samples (batch, time) to log-mel spectrograms (batch, bands, time // HOP).

    Values are about -1 to 1; the dynamic range is limited to 80 dB below the maximum.
    """
    window = metaop.hann_window(WINDOW, dtype=samples.dtype, device=samples.device)
    found = metaop.stft(samples, WINDOW, HOP, window=window, return_complex=True)
    power = found[..., :-1].abs() ** 2
    filters = metaop.from_numpy(mel_filters(bands)).to(samples)
    loudness = (filters @ power).clamp(min=1e-10).log10()
    loudness = metaop.maximum(loudness, loudness.amax((1, 2), keepdim=True) - 8.0)
    return (loudness + 4.0) / 4.0


def positional_encoding(length: int, width: int) -> metaop.Tensor:
    """Sinusoidal positional encodings (length, width): all sines, then all cosines."""
    half = width // 2
    slower = math.log(10000) / (half - 1)
    angles = metaop.arange(length)[:, None] * metaop.exp(-slower * metaop.arange(half))
    return metaop.cat((angles.sin(), angles.cos()), 1)


class Attention(nn.Module):
    """Multi-head attention over (batch, length, width); keys have no bias."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj, self.q_proj, self.out_proj = (nn.Linear(width, width) for _ in range(3))
        self.heads, self.dropout = heads, dropout

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.out_proj(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm attention and MLP, each with a residual connection; (batch, length, width) stays."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = Attention(width, heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.final_layer_norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = x + self.drop(self.self_attn(self.self_attn_layer_norm(x)))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.final_layer_norm(x)))))


class WhisperEncoder(nn.Module):
    """Log-mel spectrograms (batch, bands, 2 * length) to vectors (batch, length, width).

    The second convolution has stride 2. `length` is at most `context`. Published networks were
    trained on whole contexts of 30 seconds only.

    Example:
        WhisperEncoder.from_pretrained("whisper-tiny")(log_mel(samples))
    """

    def __init__(
        self,
        bands: int = 80,
        context: int = 1500,
        width: int = 384,
        layers: int = 4,
        heads: int = 6,
        hidden: int = 1536,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(context, width)
        self.embed_positions.weight.requires_grad_(False).copy_(positional_encoding(context, width))
        self.layers = nn.ModuleList([Block(width, heads, hidden, dropout) for _ in range(layers)])
        self.layer_norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, spectrogram: metaop.Tensor) -> metaop.Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(spectrogram)))).transpose(1, 2)
        x = self.drop(x + self.embed_positions.weight[: x.shape[1]])
        for block in self.layers:
            x = block(x)
        return self.layer_norm(x)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> WhisperEncoder:
        """The encoder of a published folder, which may hold a decoder too.

        Raises CheckpointError for settings that this network does not have, RuntimeError for
        weights of other names or shapes.
        """
        config = read_config(
            folder, model_type="whisper", activation_function="gelu", scale_embedding=False,
            encoder_layerdrop=0.0,
        )  # fmt: skip
        model = cls(
            config["num_mel_bins"], config["max_source_positions"], config["d_model"],
            config["encoder_layers"], config["encoder_attention_heads"],
            config["encoder_ffn_dim"], config["dropout"],
        )  # fmt: skip
        adopt(model, read_weights(folder), cls._renamed)
        return model.eval()

    @staticmethod
    def _renamed(name: str) -> str | None:
        """The name inside of the encoder, or None."""
        name = name.removeprefix("model.")
        return name.removeprefix("encoder.") if name.startswith("encoder.") else None


class AudioClassifier(nn.Module):
    """Log-mel spectrograms (batch, bands, 2 * length) to logits (batch, classes)."""

    def __init__(self, encoder: WhisperEncoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.layer_norm.normalized_shape[0], classes)

    def forward(self, spectrogram: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.encoder(spectrogram).mean(1))


TUNES = ("rises", "falls", "stays", "trembles")


def tones(count: int, seconds: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy tones (count, samples), float32, and which of `TUNES` each is (count,), int64."""
    time = np.arange(int(seconds * RATE)) / RATE
    kinds = random.integers(0, len(TUNES), count)
    shares = time / seconds
    octaves = np.stack((2 * shares, -2 * shares, 0 * shares, 0.5 * np.sin(2 * np.pi * 4 * shares)))[
        kinds
    ]
    pitch = random.uniform(600, 1200, (count, 1)) * 2**octaves
    sound = np.sin(2 * np.pi * np.cumsum(pitch, 1) / RATE + random.uniform(0, 6, (count, 1)))
    noise = random.normal(0, 0.1, sound.shape)
    return (sound + noise).astype(np.float32), kinds.astype(np.int64)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to classify tones; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=150, batch_size=16, lr=2e-3, seconds=0.4, bands=40, width=48,
        layers=1, heads=4,
    )  # fmt: skip
    context = math.ceil(options.seconds * RATE / HOP / 2)
    encoder = WhisperEncoder(
        options.bands, context, options.width, options.layers, options.heads, 2 * options.width
    )
    model = AudioClassifier(encoder, len(TUNES))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = metaop.optim.AdamW(trained, lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        random = np.random.default_rng((options.seed, number))
        sound, kind = map(metaop.from_numpy, tones(options.batch_size, options.seconds, random))
        logits = model(log_mel(sound, options.bands))
        loss = update(optimizer, F.cross_entropy(logits, kind))
        return {"loss": loss, "accuracy": (logits.argmax(1) == kind).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    history = train(step, options.steps, "Whisper", checkpoint)
    print(f"accuracy over the last steps {np.mean(history['accuracy'][-10:]):.3f}")
    return history["loss"]


if __name__ == "__main__":
    main()
