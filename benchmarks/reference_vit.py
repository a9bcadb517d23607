# SPDX-License-Identifier: BSD-3-Clause
"""The Vision Transformer of the system that vit_cifar is measured against, written from its description:
patches as (channel, y, x) rows through one linear layer, class token and positions that start at zero, a
layer norm and dropout on the embedding, pre-norm blocks without qkv bias, element-wise dropout where
others have stochastic depth. 2,690,506 parameters with the defaults."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = self.dropout((q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, dim))


class Mlp(nn.Module):
    def __init__(self, dim, hidden, dropout):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.fc2(self.gelu(self.fc1(x))))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, dropout, branch_dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden, dropout)
        self.branch_dropout = nn.Dropout(branch_dropout)

    def forward(self, x):
        x = x + self.branch_dropout(self.attn(self.norm1(x)))
        return x + self.branch_dropout(self.mlp(self.norm2(x)))


class ReferenceViT(nn.Module):
    def __init__(self, image=32, patch=4, channels=3, dim=192, depth=6, heads=3, mlp_ratio=4, classes=10,
                 dropout=0.1, branch_dropout=0.1):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(channels * patch * patch, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, dim))
        self.embed_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(dim, heads, int(dim * mlp_ratio), dropout, branch_dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images):
        batch, channels, height, width = images.shape
        p = self.patch
        rows = images.reshape(batch, channels, height // p, p, width // p, p)
        rows = rows.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * p * p)
        x = torch.cat([self.cls_token.expand(batch, -1, -1), self.embed(rows)], dim=1)
        x = self.dropout(self.embed_norm(x + self.pos_embed))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])

    def timm_tensors(self, tensors):
        """Return tensors with the names of this model by timm's names; the patch embedding becomes a convolution's."""
        renamed = {}
        for name, tensor in tensors.items():
            if name == "embed.weight":
                tensor = tensor.reshape(len(tensor), -1, self.patch, self.patch)
            if name.startswith("embed."):
                name = "patch_embed.proj." + name[len("embed."):]
            renamed[name.replace("embed_norm.", "norm_pre.")] = tensor
        return renamed
