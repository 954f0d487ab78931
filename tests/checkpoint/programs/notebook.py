"""Runs the cells of a notebook in a Jupyter kernel, and prints a checksum of what each of them says."""

import hashlib
import sys

import nbclient
import nbformat

CELLS = [
    "import random; from IPython.display import HTML, display; chance = random.Random(14); seen = []",
    "def work(count):\n    return sum(chance.random() for _ in range(count))",
    *(f"seen.append(work(20000))\nprint({turn}, 'x' * {turn * 300})\nseen[-1]" for turn in range(int(sys.argv[1]))),
    "display(HTML('<b>bold</b>' * 1000))",
    "%%sh\necho $((6 * 7))",
    "raise ValueError(sum(seen))",
]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
client = nbclient.NotebookClient(book, timeout=300, allow_errors=True, kernel_name="python3")
with client.setup_kernel():
    for index, cell in enumerate(book.cells):
        client.execute_cell(cell, index, store_history=True)
        # a text may come in one message or in more, as time goes by
        text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        told = [output.get("data", output.get("evalue")) for output in cell.outputs if output.output_type != "stream"]
        print(index, hashlib.sha256(repr((text, told)).encode()).hexdigest(), flush=True)
