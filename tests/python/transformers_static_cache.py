"""Hugging Face transformers: a cache of fixed size with a compiled forward pass, as for fast generation."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from checks import close, main, need, need_torch, same, test  # noqa: E402  nothing is to be looked for on a network

torch = need_torch()
transformers = need("transformers")

PROMPT = torch.randint(5, 900, (1, 12), generator=torch.Generator().manual_seed(22))


def llama():
    torch.manual_seed(23)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval().cuda()


def generated(model, **options):
    prompt = PROMPT.cuda()
    with torch.inference_mode():
        return model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, min_new_tokens=24, do_sample=False, **options
        ).tolist()


@test
def static_cache_without_compilation():
    model = llama()
    same(generated(model, cache_implementation="static", disable_compile=True), generated(model), "the text")


@test
def static_cache_compiled():
    model = llama()
    want = generated(model)
    for number in range(2):
        same(generated(model, cache_implementation="static"), want, f"text {number}")


@test
def compiled_forward_pass():
    model = llama()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=False)
    with torch.inference_mode():
        want = model(PROMPT.cuda(), use_cache=False).logits
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            close(compiled(PROMPT.cuda(), use_cache=False).logits, want, 1e-3)


if __name__ == "__main__":
    main()
