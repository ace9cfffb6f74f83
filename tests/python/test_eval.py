"""`prism eval` beside transformers: loss, perplexity, bits per byte and logits of a text."""

import json
import math

import pytest

pytest.importorskip("transformers")
import tokenizers  # noqa: E402
import torch  # noqa: E402
from hf_models import END_OF_TEXT, random_model, save, tool, train_tokenizer  # noqa: E402
from program import run  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

DOCUMENTS = ["import torch\nfor parameter in model:\n    print(parameter)\n" * 12, "é🎉 short\n", "class Tokenizer:\n" * 9]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    tokenizer = train_tokenizer(folder / "tokenizer.json")
    model = random_model()
    save(model, tokenizer, folder / "hf")
    tool("checkpoint", folder / "hf", folder / "run", 20)
    for i, text in enumerate(DOCUMENTS):
        (folder / f"{i}.txt").write_text(text)
    return folder, model, tokenizers.Tokenizer.from_file(str(tokenizer))


def oracle(model, tokenizer, context):
    """Returns logits and targets of every token from transformers, in windows side by side over the joined documents."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = [end]
    for text in DOCUMENTS:
        ids += [*tokenizer.encode(text, add_special_tokens=False).ids, end]
    rows = []
    with torch.no_grad():
        for first in range(0, len(ids) - 1, context):
            window = torch.tensor([ids[first : min(first + context, len(ids) - 1)]])
            rows.append(model(window).logits[0])
    return torch.cat(rows), torch.tensor(ids[1:])


@pytest.mark.parametrize("source", ["hf", "run", "run/checkpoints/step-00000020"])
@pytest.mark.parametrize("options", [[], ["--context", "17", "--batch", "3"]], ids=["model's context", "another context"])
def test_the_figures_are_those_of_transformers(places, tmp_path, source, options):
    folder, model, tokenizer = places
    context = int(options[1]) if options else model.config.max_position_embeddings
    logits, targets = oracle(model, tokenizer, context)
    loss = torch.nn.functional.cross_entropy(logits.double(), targets).item()
    files = [folder / f"{i}.txt" for i in range(len(DOCUMENTS))]
    result = json.loads(run("eval", folder / source, *files, *options, "--json")[0])
    assert result["loss"] == pytest.approx(loss, rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    size = sum(len(text.encode()) for text in DOCUMENTS)
    assert result["bits_per_byte"] == pytest.approx(loss * len(targets) / math.log(2) / size, rel=1e-5)
    assert (result["tokens"], result["bytes"], result["documents"], result["context"]) == (len(targets), size, 3, context)

    output, _ = run("eval", folder / source, *files, *options, "--logits", tmp_path / "logits.safetensors")
    assert f"loss           {loss:.4f} nats per token\n" in output and f"bits per byte  {result['bits_per_byte']:.4f}\n" in output
    assert all(len(line) <= 80 for line in output.splitlines()[1:5])
    written = load_file(tmp_path / "logits.safetensors")
    assert torch.equal(written["targets"], targets)
    torch.testing.assert_close(written["logits"], logits, rtol=1e-4, atol=1e-4)
