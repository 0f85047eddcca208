"""Hugging Face transformers with random weights generate text: greedy, sampled, with a cache of fixed size."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from checks import close, main, need, need_torch, note, require, same, test  # noqa: E402  nothing is to be looked for on a network

torch = need_torch()
transformers = need("transformers")

PROMPT = torch.randint(5, 900, (2, 12), generator=torch.Generator().manual_seed(18))


def gpt2():
    torch.manual_seed(19)
    config = transformers.GPT2Config(
        vocab_size=1000, n_positions=256, n_embd=192, n_layer=4, n_head=6, bos_token_id=None, eos_token_id=None, pad_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama():
    torch.manual_seed(20)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


def generated(model, tokens=24, **options):
    prompt = PROMPT.to(model.device)
    with torch.inference_mode():
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, min_new_tokens=tokens, **options)
    return text[:, prompt.shape[1] :].tolist()


def compare_with_the_cpu(make):
    model = make()
    with torch.inference_mode():
        want = model(PROMPT).logits
        model = model.cuda()
        close(model(PROMPT.cuda()).logits, want, 1e-3, "the scores")
    text = generated(model, do_sample=False)
    print(f"greedy {text}")
    same(generated(model, do_sample=False), text, "the second text")


@test
def gpt2_in_float32():
    compare_with_the_cpu(gpt2)


@test
def llama_in_float32():
    compare_with_the_cpu(llama)


@test
def sampled_text():
    model = gpt2().cuda()
    torch.manual_seed(21)
    text = generated(model, do_sample=True, top_k=50, temperature=0.8)
    torch.manual_seed(21)
    same(generated(model, do_sample=True, top_k=50, temperature=0.8), text, "the text with the same seed")
    print(f"sampled {text}")


@test
def beams():
    print(f"beams {generated(gpt2().cuda(), do_sample=False, num_beams=4)}")


@test
def llama_in_bfloat16():
    model = llama().to("cuda", torch.bfloat16)
    text = generated(model, do_sample=False)
    require(all(0 <= token < 1000 for row in text for token in row), "a token that does not exist")
    note(f"bfloat16 {text[0][:8]}")


@test
def without_the_cache():
    model = llama().cuda()
    same(generated(model, 8, do_sample=False, use_cache=False), generated(model, 8, do_sample=False), "the text without the cache")


@test
def training_step():
    model = gpt2().cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(10):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(PROMPT.cuda(), labels=PROMPT.cuda()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
