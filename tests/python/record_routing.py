"""Writes tests/python/routing/NAME.txt: how the parameters of public architectures are routed. Look at what changed, then commit it.

    PYTHONPATH=build/release/python python tests/python/record_routing.py            # architectures of transformers
    PYTHONPATH=build/release/python python tests/python/record_routing.py --timm     # those of timm too, where it is installed

Models are made on the meta device, from configurations alone, with few layers: nothing is downloaded. A table of a timm model is also the
list of its parameters, from which the test routes by names and shapes alone, since timm is no dependency of the tests.
"""

import argparse
import pathlib
import re

import torch

FOLDER = pathlib.Path(__file__).parent / "routing"

ONE = {"num_hidden_layers": 1}
TRANSFORMERS = {  # model class and what its configuration changes
    "gpt2": ("GPT2LMHeadModel", {"n_layer": 1, "tie_word_embeddings": False}),
    "gpt2-tied": ("GPT2LMHeadModel", {"n_layer": 1}),
    "gptj": ("GPTJForCausalLM", {"n_layer": 1}),
    "gpt-neox": ("GPTNeoXForCausalLM", ONE),
    "opt-350m": ("OPTForCausalLM", ONE | {"word_embed_proj_dim": 512}),
    "bloom": ("BloomForCausalLM", {"n_layer": 1}),
    "llama": ("LlamaForCausalLM", ONE),
    "llama-base-grouped": ("LlamaModel", ONE | {"num_key_value_heads": 8}),
    "llama-classification": ("LlamaForSequenceClassification", ONE),
    "mixtral": ("MixtralForCausalLM", ONE),
    "qwen2-moe": ("Qwen2MoeForCausalLM", ONE),
    "gemma2": ("Gemma2ForCausalLM", ONE),
    "phi3": ("Phi3ForCausalLM", ONE),
    "falcon": ("FalconForCausalLM", ONE),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {"num_hidden_layers": 2, "first_k_dense_replace": 1}),
    "mamba": ("MambaForCausalLM", ONE),
    "rwkv": ("RwkvForCausalLM", ONE),
    "bert": ("BertForSequenceClassification", ONE),
    "bert-masked": ("BertForMaskedLM", ONE | {"tie_word_embeddings": False}),
    "bert-questions": ("BertForQuestionAnswering", ONE),
    "roberta": ("RobertaForSequenceClassification", ONE),
    "albert": ("AlbertForMaskedLM", {}),
    "electra": ("ElectraForPreTraining", ONE),
    "deberta-v2": ("DebertaV2ForSequenceClassification", ONE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "distilbert": ("DistilBertForSequenceClassification", {"n_layers": 1}),
    "t5": ("T5ForConditionalGeneration", {"num_layers": 1}),
    "bart": ("BartForConditionalGeneration", {"encoder_layers": 1, "decoder_layers": 1}),
    "vit": ("ViTForImageClassification", ONE),
    "swin": ("SwinForImageClassification", {"num_labels": 1000, "depths": [1, 1, 1, 1]}),
    "swinv2": ("Swinv2ForImageClassification", {"num_labels": 1000, "depths": [1, 1, 1, 1]}),
    "beit": ("BeitForImageClassification", ONE | {"use_relative_position_bias": True}),
    "dinov2-registers": ("Dinov2WithRegistersForImageClassification", ONE),
    "convnext": ("ConvNextForImageClassification", {"num_labels": 1000, "depths": [1, 1, 1, 1]}),
    "resnet": ("ResNetForImageClassification", {"num_labels": 1000, "depths": [1, 1, 1, 1]}),
    "mobilenet-v2": ("MobileNetV2ForImageClassification", {"num_labels": 1000}),
    "segformer": ("SegformerForSemanticSegmentation", {"num_labels": 150, "depths": [1, 1, 1, 1]}),
    "clip": ("CLIPModel", {"text_config": ONE, "vision_config": ONE}),
    "whisper": ("WhisperForConditionalGeneration", {"encoder_layers": 1, "decoder_layers": 1}),
    "wav2vec2": ("Wav2Vec2ForCTC", ONE),
    "patchtst": ("PatchTSTForClassification", ONE | {"num_targets": 3}),
}
TIMM = {
    "timm-resnet18": "resnet18", "timm-vgg11": "vgg11", "timm-vit": "vit_small_patch16_224", "timm-mixer": "mixer_s16_224",
    "timm-convnext": "convnext_atto", "timm-swin": "swin_tiny_patch4_window7_224", "timm-efficientnet": "efficientnet_b0",
    "timm-mvitv2": "mvitv2_tiny", "timm-edgenext": "edgenext_xx_small",
}  # fmt: skip


def transformers_model(name):
    import transformers

    cls, options = TRANSFORMERS[name]
    model_class = getattr(transformers, cls)
    with torch.device("meta"):
        model = model_class(model_class.config_class(**options))
    model.tie_weights()
    return model


def shapes_of(table):
    """Returns names and shapes of a table's parameters."""
    rows = [re.split(r"  +", line) for line in table.splitlines()[1:] if "  " in line]
    return [(name, tuple(int(size) for size in shape.split(" × ")) if shape != "scalar" else ()) for name, shape, *_ in rows]


def table_by_names(shapes):
    """Returns the table made from names and shapes alone, without a model's modules."""
    import prism_optim

    return prism_optim.routing([(name, torch.nn.Parameter(torch.empty(shape, device="meta"))) for name, shape in shapes])


def main():
    import prism_optim

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm", action="store_true", help="write the tables of timm's models too")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    tables = {name: prism_optim.routing(transformers_model(name)) for name in TRANSFORMERS}
    if arguments.timm:
        import timm

        for name, model in TIMM.items():
            with torch.device("meta"):
                made = timm.create_model(model)
            tables[name] = table_by_names([(key, tuple(p.shape)) for key, p in made.named_parameters()])
    for name, table in tables.items():
        (FOLDER / f"{name}.txt").write_text(table)


if __name__ == "__main__":
    main()
