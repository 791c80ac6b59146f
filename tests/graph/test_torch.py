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


class Gives(nn.Module):
    """A module's results, or a function's, in one tuple."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *arrays):
        y = self.inner(*arrays)
        flat = []
        for each in y if isinstance(y, tuple) else (y,):
            flat += each if isinstance(each, tuple) else [each]
        return tuple(flat)


EACH = nn.Sequential(
    nn.Softplus(), nn.ELU(), nn.Hardtanh(-0.5, 2), nn.Hardswish(), nn.Mish(), nn.LeakyReLU(), nn.SELU(), nn.CELU(2.0),
    nn.Hardsigmoid(), nn.Softsign(), nn.Tanhshrink(), nn.LogSigmoid(), nn.PReLU(), nn.Threshold(0.1, 2.0), nn.ReLU6(),
)  # fmt: skip
RESIDUAL = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 8, 3, padding="same", groups=2), nn.GroupNorm(4, 8), nn.AvgPool2d(2), nn.Upsample(scale_factor=2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
)  # fmt: skip
IDS = torch.tensor([0, 5, 2, 2, 19, 7])
LAYERS = {
    "activations": (lambda x: tuple(m(x) for m in EACH), (6, 20)),
    "convolutions": (RESIDUAL, (2, 3, 8, 12)),
    "dilated": (nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2), (1, 4, 9, 8)),
    "pool over an edge": (nn.MaxPool2d(3, 2, 1), (2, 3, 9, 10)),
    "causal": (nn.Conv1d(8, 8, 4, groups=8, padding=3), (2, 8, 20)),
    "shuffled": (nn.PixelShuffle(2), (2, 8, 4, 5)),
    "norm of two": (nn.LayerNorm([6, 20]), (4, 6, 20)),
    "gated": (nn.Sequential(nn.GLU(), nn.LogSoftmax(-1)), (6, 20)),
    "encoder": (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 9, 32)),
    "lstm": (nn.LSTM(8, 16, 2, batch_first=True), (2, 5, 8)),
    "gru": (nn.GRU(8, 16, bidirectional=True), (5, 2, 8)),
    "rnn": (nn.RNN(8, 16, bias=False), (5, 2, 8)),
    "statistics": (lambda x: (x.var(-1), x.std(0), x.var(correction=0, dim=0), x.logsumexp(-1), x.norm(),
                              x.norm(dim=1)), (6, 20)),
    "masks": (lambda x: (x.masked_fill(torch.ones(6, 6).tril() == 0, float("-inf")).softmax(-1), (x > 2).any(1),
                         x.triu(1), x.cumsum(-1), x.argmax(-1), (x > -1).all()), (6, 6)),
    "of masks": (lambda x: (torch.ones(6, 6, dtype=torch.bool).tril(1), (x > 0).sum(0), (x > 0).masked_fill(x > 1, 0)),
                 (6, 6)),
    "numbers": (lambda x: x * torch.arange(20) + torch.arange(2, 42, 2) + torch.zeros(20) - torch.full((1,), 3.0),
                (6, 20)),
    "letters": (lambda a, b, c: torch.einsum("bij,bjk,kl->bil", a, b, c), (2, 4, 5), (2, 5, 6), (6, 7)),
    "others": (lambda x, y: (torch.clamp(x, -1, 1), 1 - x, x.sign(), torch.outer(x[0], y[0]), torch.dot(x[0], y[0]),
                             x // 2, x % 3, x.abs().log1p(), x.trunc(), x[0].expand_as(y)), (6, 20), (6, 20)),
    "losses": (lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y),
                             F.huber_loss(x, y, delta=0.5), F.cross_entropy(x, y.softmax(1)),
                             F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cosine_similarity(x, y),
                             F.normalize(x, dim=-1)), (6, 20), (6, 20)),
    "classes": (lambda x: (F.cross_entropy(x, IDS), F.nll_loss(x, IDS, reduction="none"), x.gather(1, IDS[:, None]),
                           x[IDS % 6]), (6, 20)),
    "one hot": (lambda x: x * F.one_hot(IDS, 20), (6, 20)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_losses_agree_with_torch(name):
    if name == "one hot" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("before 2.13 one_hot looks at the indices, which an exported program has not")
    inner, *shapes = LAYERS[name]
    arrays, module = tuple(torch.randn(s) for s in shapes), Gives(inner).eval()
    with torch.no_grad():
        graph, weights = G.from_torch(torch.export.export(module, arrays))
        assert G.parse_graph(str(graph)) == graph
        made = graph.compile()(*arrays, *weights)
        made = made if isinstance(made, tuple) else (made,)
        for got, want in zip(made, module(*arrays), strict=True):
            assert got.shape == want.shape
            assert float((got.double() - want.double()).norm()) <= 1e-5 * float(
                want.double().norm()
            )


def test_all_ops_that_no_graph_has_are_named_at_once():
    program = torch.export.export(Gives(lambda x: (x.i0(), x.digamma())), (torch.randn(2, 3),))
    with pytest.raises(CompileError, match=r"aten.digamma.default, aten.i0.default\n") as info:
        G.from_torch(program)
    assert "relu" in (info.value.hint or "")


def test_a_use_that_is_not_traced_names_its_op():
    class Repeated(nn.Module):
        def forward(self, x, n):
            return x.repeat_interleave(n.to(torch.int32) * 0 + 2, output_size=8)

    with pytest.raises(CompileError, match=r"aten.repeat_interleave.self_Tensor"):
        G.from_torch(torch.export.export(Repeated(), (torch.randn(4), torch.ones(4))))


def test_what_is_no_program_is_refused():
    with pytest.raises(CompileError, match="takes an exported program, not Linear"):
        G.from_torch(nn.Linear(2, 2))
