# %% [markdown]
# # From two folders to a table
#
# You have images of some kinds in folders, and unlabelled ones that nobody has looked through: partly kinds you know,
# partly new ones. Put your own two folders here and leave the second cell out: it writes drawings that come with
# newfound (Google's *Quick, Draw!*, CC BY 4.0) as files: six known kinds, unlabelled drawings of three of these and
# three others, and more of the unlabelled kinds for later.

# %%
import tempfile
from itertools import product
from pathlib import Path

import pandas as pd
from PIL import Image

import newfound
from newfound.data.datasets import load_doodles

place = Path(tempfile.mkdtemp())
known, unlabelled, later = place / "known", place / "unlabelled", place / "later"

# %%
drawings = load_doodles("spare")
parts = [(known, range(6), range(20)), (unlabelled, range(3, 9), range(20, 40)), (later, range(3, 9), range(40, 50))]
for folder, kinds, numbers in parts:
    for kind, number in product(kinds, numbers):
        file = folder / drawings.listing.classes[kind] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawings.pixels[100 * kind + number, 0].numpy()).resize((112, 112)).save(file)

# %% [markdown]
# The unlabelled drawings lie in folders too, but discovery does not look at their names; we use them at the end to see
# how well it went. One call does the work: features of a pretrained network, training, reading.

# %%
run = newfound.discover(known=known, unlabelled=unlabelled, classes=3)
run.summary()

# %% [markdown]
# Known kinds come first, under their names; new ones are called new-1, new-2, …, the largest first. `coherence` is
# the mean confidence of a class, `newness` the mean probability that its images are of no known kind. Images that are
# more likely wrong than right are `unsure`:

# %%
table = run.assignments()
table[["path", "class", "kind", "confidence", "newness", "guess"]].sample(8, random_state=0)

# %% [markdown]
# What the drawings really were (rows), and what was found (columns):

# %%
pd.crosstab(table["path"].str.split("/").str[0].rename("really"), table["class"].rename("found"))

# %% [markdown]
# Where you cannot say how many new kinds there are, leave `classes` out. The number is then estimated, with an
# interval. With as few images as here it is a rough guess (there are three); the report shows the curves it comes from.

# %%
guess = newfound.discover(known=known, unlabelled=unlabelled, run=newfound.Run(epochs=0))
print(guess.facts["classes"])

# %% [markdown]
# Name what you recognise, keep the run, and ask it about images it has never seen. `run.undo()` would take the name
# back. The run folder has a page, `report.html`, that shows every class with its most typical images.

# %%
largest = run.summary().query("kind == 'new'")["class"].iloc[0]
run.rename(largest, "my new kind")
run.save(place / "run")
newfound.Discovery.load(place / "run").predict(later)["class"].value_counts()
