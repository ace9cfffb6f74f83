"""Models and data small enough that each client trains in a second."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).unsqueeze(1).chunk(3, dim=-1)
        x = x + self.c_proj(functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.mlp(self.ln_2(x))


class TinyGPT(nn.Module):
    """A GPT-2: learned positions, and a head tied to the embedding."""

    def __init__(self, vocabulary=32, context=12, width=16, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return functional.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1).float(), targets.flatten())


def tiny_gpt(seed=0):
    torch.manual_seed(seed)
    return TinyGPT()


def counting(rows, seed=0, length=13, vocabulary=32):
    """Returns rows that count up from a random start."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(vocabulary, (rows, 1), generator=generator) + torch.arange(length)) % vocabulary


class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def tiny_net(seed=0):
    torch.manual_seed(seed)
    return TinyNet()


def regression(rows=64, seed=0):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].sin()
