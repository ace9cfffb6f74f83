"""prism/model against `transformers` (logits, greedy generation, folders) and a plain PyTorch twin (loss, gradients)."""

import json
import math

import pytest

pytest.importorskip("transformers")
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from hf_models import END_OF_TEXT, VOCAB, make_config, random_model, save, tool, train_tokenizer  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.nn.functional import cross_entropy, silu  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

# tied or not; full attention, grouped queries, one key-value head; heads wider than the residual stream
SHAPES = {
    "tied-grouped": {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "untied-grouped": {"num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "tied-full": {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "untied-full": {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "tied-one-key": {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True, "head_dim": 24},
}


@pytest.fixture(autouse=True)
def one_thread():
    """The models are small: a second thread would only spin."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture
def tokens(tmp_path):
    """(tensor, file): two rows of 33 token ids."""
    ids = torch.randint(0, VOCAB, (2, 33), generator=torch.Generator().manual_seed(5))
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(ids.tolist()))
    return ids, path


def relative_error(actual, expected):
    return ((actual.double() - expected.double()).norm() / expected.double().norm()).item()


def our_logits(folder, tokens_file, tmp_path):
    tool("logits", folder, tokens_file, tmp_path / "logits.safetensors")
    return load_file(tmp_path / "logits.safetensors")["logits"]


def their_logits(model, ids):
    with torch.no_grad():
        return model(ids).logits.float()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_of_an_imported_model_are_those_of_transformers(shape, tmp_path, tokenizer_file, tokens):
    model = random_model(**SHAPES[shape])
    ours = our_logits(save(model, tokenizer_file, tmp_path / "hf"), tokens[1], tmp_path)
    theirs = their_logits(model, tokens[0])
    assert theirs.std() > 0.3  # or the comparison shows nothing
    assert relative_error(ours, theirs) < 1e-5
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_of_an_exported_model_in_transformers_are_ours(shape, tmp_path, tokenizer_file, tokens):
    config = make_config(**SHAPES[shape])
    config.architectures = ["Qwen2ForCausalLM"]
    config.to_json_file(tmp_path / "config.json")
    tool("create", tmp_path / "config.json", tokenizer_file, 7, tmp_path / "fresh")
    # Our fresh weights have zero biases, so a model with random biases is converted and compared as well.
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "fresh", dtype=torch.float32)
    assert relative_error(our_logits(tmp_path / "fresh", tokens[1], tmp_path), their_logits(model, tokens[0])) < 1e-5
    save(random_model(**SHAPES[shape]), tokenizer_file, tmp_path / "theirs")
    tool("convert", tmp_path / "theirs", tmp_path / "ours")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32)
    assert relative_error(our_logits(tmp_path / "theirs", tokens[1], tmp_path), their_logits(model, tokens[0])) < 1e-5


def test_an_exported_folder_has_every_file_and_no_head_where_it_is_tied(tmp_path, tokenizer_file):
    save(random_model(**SHAPES["tied-grouped"]), tokenizer_file, tmp_path / "theirs")
    tool("convert", tmp_path / "theirs", tmp_path / "ours")
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / "ours").iterdir()} == names
    with safe_open(tmp_path / "ours/model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys() and file.metadata()["format"] == "pt"
        assert file.get_tensor("model.embed_tokens.weight").dtype == torch.float32
    config = json.loads((tmp_path / "ours/config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 1e4
    assert config["torch_dtype"] == config["dtype"] == "float32"


def test_transformers_reads_shape_and_end_of_text_from_our_folder(tmp_path, tokenizer_file):
    theirs = random_model(**SHAPES["untied-grouped"], rms_norm_eps=1e-5)
    save(theirs, tokenizer_file, tmp_path / "theirs")
    tool("convert", tmp_path / "theirs", tmp_path / "ours")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    for key in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps",
                "num_key_value_heads", "tie_word_embeddings", "max_position_embeddings", "rope_parameters", "hidden_act"]:  # fmt: skip
        assert getattr(ours.config, key) == getattr(theirs.config, key), key
    end = tokenizers.Tokenizer.from_file(str(tokenizer_file)).token_to_id(END_OF_TEXT)
    assert ours.config.eos_token_id == ours.generation_config.eos_token_id == end


def test_the_exported_tokenizer_gives_the_same_ids_in_transformers(tmp_path, tokenizer_file):
    save(random_model(**SHAPES["tied-grouped"]), tokenizer_file, tmp_path / "theirs")
    tool("convert", tmp_path / "theirs", tmp_path / "ours")
    theirs, ours = tokenizers.Tokenizer.from_file(str(tokenizer_file)), AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in ["def test(x):\n    return x", "Ünïcode 名 e\u0301 🎉", f"a{END_OF_TEXT}b", "  don't  stop ", ""]:
        assert ours(text)["input_ids"] == theirs.encode(text).ids
        assert ours.decode(theirs.encode(text).ids) == theirs.decode(theirs.encode(text).ids, skip_special_tokens=False)
    assert ours.eos_token == END_OF_TEXT and ours.model_max_length == 96


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_read_exactly(dtype, tmp_path, tokenizer_file, tokens):
    folder = save(random_model(**SHAPES["tied-grouped"]).to(dtype), tokenizer_file, tmp_path / "hf")
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.get_tensor("model.norm.weight").dtype == dtype
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert relative_error(our_logits(folder, tokens[1], tmp_path), their_logits(model, tokens[0])) < 1e-5


def test_export_in_bfloat16_rounds_to_nearest(tmp_path, tokenizer_file):
    model = random_model(**SHAPES["tied-grouped"])
    save(model, tokenizer_file, tmp_path / "theirs")
    tool("convert", tmp_path / "theirs", tmp_path / "ours", "bfloat16")
    written = load_file(tmp_path / "ours/model.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(written[name], parameter.to(torch.bfloat16)), name
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "ours").dtype == torch.bfloat16


def test_sharded_weights_are_read_through_their_index(tmp_path, tokenizer_file, tokens):
    model = random_model(**SHAPES["untied-grouped"])
    folder = save(model, tokenizer_file, tmp_path / "hf", max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2 and not (folder / "model.safetensors").exists()
    assert relative_error(our_logits(folder, tokens[1], tmp_path), their_logits(model, tokens[0])) < 1e-5
    missing = sorted(folder.glob("model-*.safetensors"))[1]
    missing.unlink()
    assert missing.name in tool("logits", folder, tokens[1], tmp_path / "none", status=2)


def test_a_head_written_beside_tied_weights_must_be_the_embedding(tmp_path, tokenizer_file, tokens):
    model = random_model(**SHAPES["tied-grouped"])
    folder = save(model, tokenizer_file, tmp_path / "hf")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    assert relative_error(our_logits(folder, tokens[1], tmp_path), their_logits(model, tokens[0])) < 1e-5
    save_file({**weights, "lm_head.weight": weights["model.embed_tokens.weight"] + 1}, folder / "model.safetensors")
    assert "tied" in tool("logits", folder, tokens[1], tmp_path / "none", status=2)


def test_other_architectures_are_refused_by_name(tmp_path, tokens):
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "hf")
    assert '"llama"' in tool("logits", tmp_path / "hf", tokens[1], tmp_path / "none", status=2)


# The twin: the formulas of qwen2.h in PyTorch, with gradients by autograd. Its float64 result is the truth; its float32 error is the yardstick.


def rope(x, theta):  # (B, heads, T, D)
    T, D = x.shape[-2:]
    frequencies = theta ** (-torch.arange(0, D, 2).double() / D)
    angles = torch.outer(torch.arange(T).double(), frequencies)
    cosine, sine = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def rms_norm(x, g, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * g


def twin_loss(W, config, tokens):
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    (B, T), H, K = ids.shape, config.num_attention_heads, config.num_key_value_heads
    theta, eps = config.rope_parameters["rope_theta"], config.rms_norm_eps
    x = W["model.embed_tokens.weight"][ids]
    for i in range(config.num_hidden_layers):
        layer = {name.removeprefix(f"model.layers.{i}."): w for name, w in W.items() if name.startswith(f"model.layers.{i}.")}
        n = rms_norm(x, layer["input_layernorm.weight"], eps)
        q, k, v = (
            (n @ layer[f"self_attn.{p}_proj.weight"].T + layer[f"self_attn.{p}_proj.bias"]).view(B, T, heads, -1).transpose(1, 2)
            for p, heads in [("q", H), ("k", K), ("v", K)]
        )
        q, k = rope(q, theta), rope(k, theta)
        k, v = k.repeat_interleave(H // K, 1), v.repeat_interleave(H // K, 1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1) @ layer["self_attn.o_proj.weight"].T
        n = rms_norm(x, layer["post_attention_layernorm.weight"], eps)
        x = x + (silu(n @ layer["mlp.gate_proj.weight"].T) * (n @ layer["mlp.up_proj.weight"].T)) @ layer["mlp.down_proj.weight"].T
    head = W.get("lm_head.weight", W["model.embed_tokens.weight"])
    logits = rms_norm(x, W["model.norm.weight"], eps) @ head.T
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("recompute", [[], ["recompute"]], ids=["kept", "recomputed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_and_every_gradient_are_those_of_the_twin(shape, recompute, tmp_path, tokenizer_file, tokens):
    model = random_model(**SHAPES[shape])
    folder = save(model, tokenizer_file, tmp_path / "hf")
    tool("gradients", folder, tokens[1], tmp_path / "gradients", *recompute)
    ours = load_file(tmp_path / "gradients")
    exact = {name: w.detach().double().requires_grad_() for name, w in model.named_parameters()}
    single = {name: w.detach().clone().requires_grad_() for name, w in model.named_parameters()}
    loss = twin_loss(exact, model.config, tokens[0])
    loss.backward()
    twin_loss(single, model.config, tokens[0]).backward()
    assert ours.pop("loss").item() == pytest.approx(loss.item(), rel=1e-6)
    assert ours.keys() == exact.keys()
    for name, weight in exact.items():
        allowed = max(2 * relative_error(single[name].grad, weight.grad), 2e-6)
        assert relative_error(ours[name], weight.grad) < min(allowed, 1e-4), name


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_generation_with_the_cache_is_that_of_transformers(shape, tmp_path, tokenizer_file):
    model = random_model(**SHAPES[shape])
    folder = save(model, tokenizer_file, tmp_path / "hf")
    for seed in range(4):
        prompt = torch.randint(0, VOCAB, (1, 3 + 4 * seed), generator=torch.Generator().manual_seed(seed))
        (tmp_path / "prompt.json").write_text(json.dumps(prompt.tolist()))
        theirs = model.generate(prompt, max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0)
        ours = json.loads(tool("generate", folder, tmp_path / "prompt.json", 40))
        assert ours == theirs[0, prompt.shape[1] :].tolist()
        assert len(set(ours)) > 5  # not one token over and over
