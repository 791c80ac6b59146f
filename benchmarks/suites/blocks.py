"""Blocks of models as users write them in PyTorch, for what `G.from_torch` makes of them beside PyTorch."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional as f

Inputs: TypeAlias = "Callable[[Draw, int], tuple[Any, ...]]"

BLOCKS: dict[str, tuple[type[nn.Module], Inputs, tuple[Any, ...]]] = {}
"""A module, its inputs (drawn, so many times smaller), and its arguments."""


class Draw:
    """Random arrays of a dtype on a device."""

    def __init__(self, device: str, dtype: Any):
        self.device, self.dtype = device, dtype

    def __call__(self, *shape: int) -> Any:
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def ids(self, below: int, *shape: int) -> Any:
        return torch.randint(below, shape, device=self.device)


def drawn(name: str, device: str, dtype: Any, smaller: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """A module of the table, and inputs for it."""
    kind, inputs, arguments = BLOCKS[name]
    return kind(*arguments).eval().to(device, dtype), inputs(Draw(device, dtype), smaller)


def block(inputs: Inputs, *arguments: Any) -> Any:
    def add(kind: type[nn.Module]) -> type[nn.Module]:
        BLOCKS[kind.__name__.lower()] = kind, inputs, arguments
        return kind

    return add


@block(lambda rand, s: (rand(4096 // s, 1024),), 1024, 16, 4, 2816)
class Decoder(nn.Module):
    """Grouped causal attention with rotary embeddings, and a gated layer, behind RMS norms."""

    def __init__(self, d: int, heads: int, groups: int, inner: int):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, d // heads
        self.first, self.second = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, 2 * groups * self.size, bias=False)
        self.gate, self.up = (nn.Linear(d, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, d, bias=False)

    def rotated(self, x: Any) -> Any:
        t = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        rates = 10000 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angle = t[:, None] * rates
        a, b = x.chunk(2, -1)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        q = self.q(h).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        k, v = self.kv(h).unflatten(-1, (2 * self.groups, -1)).transpose(0, 1).chunk(2)
        k = self.rotated(k).repeat_interleave(self.heads // self.groups, 0)
        v = v.repeat_interleave(self.heads // self.groups, 0)
        y = f.scaled_dot_product_attention(self.rotated(q)[None], k[None], v[None], is_causal=True)
        x = x + self.out(y[0].transpose(0, 1).flatten(1))
        h = self.second(x)
        return x + self.down(f.silu(self.gate(h)) * self.up(h))


@block(lambda rand, s: (rand(32 // s, 96, 56, 56),), 96)
class ConvNext(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.depth = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm = nn.LayerNorm(c)
        self.wide, self.narrow = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.randn(c))

    def forward(self, x: Any) -> Any:
        h = self.norm(self.depth(x).permute(0, 2, 3, 1))
        h = self.narrow(f.gelu(self.wide(h))) * self.scale
        return x + h.permute(0, 3, 1, 2)


@block(lambda rand, s: (rand(2048 // s, 1024),), 1024, 8)
class Retention(nn.Module):
    """Scores with a decay by distance instead of a normaliser, a norm per head, and a gate."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkvg, self.out = nn.Linear(d, 4 * d, bias=False), nn.Linear(d, d, bias=False)
        self.norm = nn.GroupNorm(heads, d)
        decay = 1 - 2.0 ** (-5 - torch.arange(heads))
        self.register_buffer("log", torch.log(decay))

    def forward(self, x: Any) -> Any:
        t = x.shape[0]
        q, k, v, g = self.qkvg(x).chunk(4, -1)
        q, k, v = (h.unflatten(-1, (self.heads, -1)).transpose(0, 1) for h in (q, k, v))
        at = torch.arange(t, device=x.device)
        far = at[:, None] - at
        decay = torch.where(far >= 0, torch.exp(self.log[:, None, None].float() * far), 0.0)
        scores = (q @ k.transpose(1, 2)) * decay.to(x.dtype) * (q.shape[-1] ** -0.5)
        y = self.norm((scores @ v).transpose(0, 1).flatten(1))
        return self.out(f.silu(g) * y)


@block(lambda rand, s: (rand(64 // s, 196, 512),), 196, 512)
class Mixer(nn.Module):
    def __init__(self, n: int, d: int):
        super().__init__()
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens = nn.Sequential(nn.Linear(n, 256), nn.GELU(), nn.Linear(256, n))
        self.channels = nn.Sequential(nn.Linear(d, 2048), nn.GELU(), nn.Linear(2048, d))

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


@block(lambda rand, s: (rand(32 // s, 256, 28, 28),), 256, 64)
class Bottleneck(nn.Module):
    """A residual bottleneck with batch norms as in inference, and squeeze and excitation."""

    def __init__(self, c: int, inner: int):
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(*each, bias=False)
            for each in ((c, inner, 1), (inner, inner, 3, 1, 1), (inner, c, 1))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, c))
        self.squeeze, self.excite = nn.Linear(c, c // 16), nn.Linear(c // 16, c)

    def forward(self, x: Any) -> Any:
        h = x
        for step, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            h = norm(convolution(h))
            h = f.relu(h) if step < 2 else h
        s = torch.sigmoid(self.excite(f.relu(self.squeeze(h.mean((2, 3))))))
        return f.relu(x + h * s[:, :, None, None])


@block(lambda rand, s: (rand(8 // min(s, 4), 320, 32, 32), rand(8 // min(s, 4), 1280)), 320, 1280)
class Diffusion(nn.Module):
    """A residual block of a diffusion network: group norms, convolutions, the time in between."""

    def __init__(self, c: int, time: int):
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, c), nn.GroupNorm(32, c)
        self.conv, self.last = (nn.Conv2d(c, c, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, c)

    def forward(self, x: Any, time: Any) -> Any:
        h = self.conv(f.silu(self.first(x))) + self.time(f.silu(time))[:, :, None, None]
        return x + self.last(f.silu(self.second(h)))


@block(lambda rand, s: (rand(4096 // s, 512),), 512, 16, 64)
class SoftExperts(nn.Module):
    """Slots of experts are mixtures of all tokens, tokens mixtures of all slots."""

    def __init__(self, d: int, experts: int, slots: int):
        super().__init__()
        self.slots = nn.Parameter(torch.randn(d, experts * slots) / d**0.5)
        self.up = nn.Parameter(torch.randn(experts, d, 2 * d) / d**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * d, d) / (2 * d) ** 0.5)

    def forward(self, x: Any) -> Any:
        scores = x @ self.slots
        mixed = (scores.softmax(0).T @ x).unflatten(0, (len(self.up), -1))
        y = torch.bmm(f.gelu(torch.bmm(mixed, self.up)), self.down)
        return scores.softmax(1) @ y.flatten(0, 1)


@block(lambda rand, s: (rand(8192 // s, 128), rand.ids(8192 // s, 2, 65536 // s)), 128)
class Messages(nn.Module):
    """A step of message passing: an MLP of both ends of each edge, added up at its target."""

    def __init__(self, d: int):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.node = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        m = self.edge(torch.cat([x[source], x[target]], -1))
        total = torch.zeros_like(x).index_add(0, target, m)
        return x + self.node(torch.cat([x, total], -1))


@block(
    lambda rand, s: (*(rand(8, 2048 // s, 16, 64) for _ in range(3)), rand(8, 2048 // s, 16)), 64
)
class Chunks(nn.Module):
    """A linear recurrence with a decay per head and step, as in Mamba-2, in chunks."""

    def __init__(self, chunk: int):
        super().__init__()
        self.chunk = chunk
        self.d = nn.Parameter(torch.randn(16))

    def forward(self, x: Any, b: Any, c: Any, rate: Any) -> Any:
        n = x.shape[1] // self.chunk
        split = (h.unflatten(1, (n, self.chunk)).transpose(2, 3) for h in (x, b, c))
        v, k, q = split  # [batch, n, heads, chunk, size]
        a = -f.softplus(rate.float()).unflatten(1, (n, self.chunk)).transpose(2, 3)
        total = a.cumsum(-1)
        far = total[..., :, None] - total[..., None, :]
        at = torch.arange(self.chunk, device=x.device)
        decay = torch.where(at[:, None] >= at, far.exp(), 0.0).to(x.dtype)
        within = (q @ k.transpose(-1, -2) * decay) @ v
        left = (total[..., -1:] - total).exp().to(x.dtype)
        states = (k * left[..., None]).transpose(-1, -2) @ v
        ends = total[..., -1].cumsum(1).transpose(1, 2)  # [batch, heads, n]
        apart = (
            ends[..., :, None] - total[..., -1].transpose(1, 2)[..., :, None] - ends[..., None, :]
        )
        i = torch.arange(n, device=x.device)
        carry = torch.where(i[:, None] > i, apart.exp(), 0.0).to(x.dtype)
        before = torch.einsum("bhij,bjhkv->bihkv", carry, states)
        across = (q * total.exp().to(x.dtype)[..., None]) @ before
        y = (within + across).transpose(2, 3).flatten(1, 2)
        return y + x * self.d[:, None]


@block(lambda rand, s: (rand.ids(26000, 8192 // s, 26),), 26, 16)
class Cross(nn.Module):
    """Embeddings of 26 features and three cross layers over all of them, as in recommenders."""

    def __init__(self, features: int, size: int):
        super().__init__()
        self.table = nn.Embedding(26000, size)
        d = features * size
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(3))
        self.top = nn.Linear(d, 1)

    def forward(self, ids: Any) -> Any:
        x = first = self.table(ids).flatten(1)
        for layer in self.layers:
            x = first * layer(x) + x
        return self.top(x)
