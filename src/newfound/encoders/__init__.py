"""How images become latents, and what is remembered of known classes there."""

from newfound.encoders.base import Encoder
from newfound.encoders.choose import choose_encoder, embed, encoder_of

__all__ = ["Encoder", "choose_encoder", "embed", "encoder_of"]
