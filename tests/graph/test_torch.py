"""Programs of torch.export as graphs: what they compute, their symbols, and the ops that are refused."""

# Modules of torch are not typed here.
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import pytest

from tilewright import graph as G
from tilewright.diagnostics import CompileError, LaunchError

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    """An embedding, attention over heads, a norm and an MLP."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(10, 32), nn.LayerNorm(32)
        self.qkv, self.up = nn.Linear(32, 96, bias=False), nn.Linear(32, 48)
        self.down = nn.Linear(48, 32)

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = (self.qkv(x)[:, n * 32 : n * 32 + 32].view(-1, 4, 8).transpose(0, 1) for n in range(3))  # fmt: skip
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(0, 1).reshape(x.shape[0], 32)
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_a_block_of_a_model_agrees_with_torch():
    module = Block().eval()
    length = torch.export.Dim("length", min=2)
    ids = torch.randint(0, 10, (9,))
    program = torch.export.export(module, (ids,), dynamic_shapes=({0: length},))
    graph, weights = G.from_torch(program, "block")
    assert graph.name == "block" and len(graph.symbols) == 1
    assert G.parse_graph(str(graph)) == graph
    run = graph.compile()
    ids = torch.randint(0, 10, (13,))
    want = module(ids).detach()
    got = run(ids, *weights)
    assert got.dtype == want.dtype
    assert float((got - want).norm() / want.norm()) < 1e-5
    with pytest.raises(LaunchError, match="takes 9 arrays"):
        run(ids)


class Pieces(nn.Module):
    """Ops one by one: reductions, comparisons, types, views."""

    def forward(self, x, y):
        z = F.silu(x) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        w = torch.where(x > y, x, 0.0).amax(-1)
        part = torch.softmax(x, -1)[:, 2:10].to(torch.bfloat16)
        return z, w, part, torch.add(x, y, alpha=2.0).unsqueeze(1).expand(-1, 3, -1).sum((0, 1))


def test_ops_agree_with_torch():
    x, y = torch.randn(6, 20), torch.randn(6, 20)
    graph, weights = G.from_torch(torch.export.export(Pieces(), (x, y)))
    assert weights == []
    for got, want in zip(graph.compile()(x, y), Pieces()(x, y), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        assert float((got.float() - want.float()).norm() / want.float().norm()) < 1e-5


class Gated(nn.Module):
    """Parts of one product; few heads of keys; what is rounded."""

    def forward(self, x, w, q, k, v):
        gate, up = (x @ w).chunk(2, dim=-1)
        a, b, _ = torch.round(gate * 8).split([3, 4, 13], dim=1)
        c = v.split(5, dim=2)[1]
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True)
        return F.silu(gate) * up, a.sum() + b.sum(), c, y


def test_parts_and_groups_of_heads_agree_with_torch():
    shapes = ((33, 24), (24, 40), (2, 6, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16))
    module, arrays = Gated(), tuple(torch.randn(s) for s in shapes)
    graph, weights = G.from_torch(torch.export.export(module, arrays))
    for got, want in zip(graph.compile()(*arrays, *weights), module(*arrays), strict=True):
        assert got.shape == want.shape
        assert float((got - want).norm() / want.norm()) < 1e-5


def test_all_ops_that_no_graph_has_are_named_at_once():
    module = nn.Sequential(nn.Softplus(), nn.ReLU(), nn.Hardtanh())
    program = torch.export.export(module, (torch.randn(2, 3),))
    with pytest.raises(
        CompileError, match=r"aten.hardtanh.default, aten.softplus.default\n"
    ) as info:
        G.from_torch(program)
    assert "relu" in (info.value.hint or "")


class Joined(nn.Module):
    """Heads turned by their halves, a cache that grows, and other ways to put tensors together."""

    def forward(self, x, w, keys, angles):
        q, k = (x @ w).view(x.shape[0], 2, 4, 16).permute(1, 2, 0, 3).unbind(0)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        half = torch.cat((-k[..., 8:], k[..., :8]), -1)
        keys = torch.cat([keys, k * cos + half * sin], 1)
        y = torch.stack([q.sum(-1), q.amax(-1)], 1).flatten(1)
        z = F.pad(x, (1, 2, 0, 3)) + F.pad(x, (2, 1, 1, 2), mode="constant", value=1.0)
        return q @ keys.mT, y, z, x.roll(2, 0).flip(1)[::2], x.repeat(2, 1)[:, 1::3]


def test_what_is_put_together_agrees_with_torch():
    arrays = tuple(torch.randn(s) for s in ((9, 24), (24, 128), (4, 20, 16), (9, 8)))
    graph, weights = G.from_torch(torch.export.export(Joined(), arrays))
    for got, want in zip(graph.compile()(*arrays, *weights), Joined()(*arrays), strict=True):
        assert got.shape == want.shape
        assert float((got - want).norm() / want.norm()) < 1e-5


def test_a_use_that_is_not_traced_names_its_op():
    class Repeated(nn.Module):
        def forward(self, x, n):
            return x.repeat_interleave(n.to(torch.int32) * 0 + 2, output_size=8)

    with pytest.raises(CompileError, match=r"aten.repeat_interleave.self_Tensor"):
        G.from_torch(torch.export.export(Repeated(), (torch.randn(4), torch.ones(4))))


def test_what_is_no_program_is_refused():
    with pytest.raises(CompileError, match="takes an exported program, not Linear"):
        G.from_torch(nn.Linear(2, 2))
