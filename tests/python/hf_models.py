"""Small Qwen2 models and a tokenizer in Hugging Face folders, and the tool that reads them."""

import math
import pathlib

import torch
from program import ENVIRONMENT, run_tool
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM

END_OF_TEXT = "<|endoftext|>"
VOCAB = 400
TOKENIZER_SIZE = VOCAB - 20
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def tool(*arguments, status=0):
    result = run_tool("model/model_tool", *arguments, env=ENVIRONMENT)
    assert result.returncode == status, result.stderr
    return result.stdout if status == 0 else result.stderr


def make_config(**changes):
    sizes = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4}
    rope = {"rope_type": "default", "rope_theta": 1e4}
    return Qwen2Config(**{**sizes, "num_key_value_heads": 2, "max_position_embeddings": 96, "rope_parameters": rope, **changes})


def random_model(**changes):
    """Returns a model with random biases and norms, unlike a fresh one of transformers, whose logits are all alike."""
    model = Qwen2ForCausalLM(make_config(**changes)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:
                parameter.copy_(noise * (1.5 / math.sqrt(parameter.shape[1])))
            else:
                parameter.copy_(0.5 * noise + ("norm" in name))
    return model


def chain_model(chain):
    """Returns a model that continues each token of the chain with the next one: layers of zeros, one direction per token."""
    model = Qwen2ForCausalLM(make_config(hidden_size=VOCAB, head_dim=8, num_hidden_layers=1, tie_word_embeddings=False))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float("norm" in name))
        model.model.embed_tokens.weight.copy_(torch.eye(VOCAB))
        for token, following in zip(chain, chain[1:]):
            model.lm_head.weight[following, token] = 1
    return model


def train_tokenizer(path):
    """Trains a tokenizer on this file: every byte is a token, and some words are."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([pathlib.Path(__file__).read_text()], trainer)
    tokenizer.save(str(path))
    return path


def save(model, tokenizer_file, folder, **options):
    model.save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    return folder
