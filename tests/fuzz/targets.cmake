# prism_add_fuzz(<name> <library>): fuzz_<name>.cpp drives that library.
prism_add_fuzz(safetensors prism::io)
prism_add_fuzz(config prism::io)
prism_add_fuzz(json_lines prism::io)
prism_add_fuzz(jsonl prism::data)
prism_add_fuzz(shard_header prism::data)
prism_add_fuzz(tokenizer_json prism::text)
prism_add_fuzz(page prism::report)
