"""Numbers of the JAGG paper that the report sets its own beside; a test holds them to the claims registry."""

PAPER = "arXiv 2607.17572"
COSINES = {"FLUX.1-dev": (0.85, 0.77, 0.74, 0.63, 0.22), "Qwen-Image": (0.79, 0.64, 0.58)}
"""Model -> mean cosine of JAGG's window gradient with the exact one, windows from high to low noise (Table 5).
FLUX.1-dev's last is "about"; Qwen-Image's later windows are "lower", without a number."""
ROUTING_THRESHOLD = 0.5
"""Mean cosine from which the paper's routing takes a window to be well approximated."""


def cosines_in_words() -> str:
    """The published profiles as a sentence's part."""
    flux, qwen = ([f"{value:g}" for value in values] for values in COSINES.values())
    falling = f"{', '.join(flux[:-1])} and about {flux[-1]} on FLUX.1-dev"
    return f"{falling}, and {', '.join(qwen)} and then lower on Qwen-Image"
