"""Images → latents, latents → logits."""
