"""`make bench-engine`: the techniques of the lab against the plain engine, and the tables of docs/lab.md.

python -m bench.engine_lab                    measures all themes, writes bench/results/engine.json and the tables
python -m bench.engine_lab --only weights     measures one, and leaves the results of the others as they are
python -m bench.engine_lab --model tiny       measures another model, and writes nothing: the page is of SmolLM2
python -m bench.engine_lab --page             writes the tables of the results that are there

One thread: with as many as a small machine has processors, all of them wait at every product for the one whose
processor does something else, and a table is of that.

A theme is a table: add yours to THEMES, and its marks to docs/lab.md.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch

from backends.reference.model_files import ensure_model
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import SMOLLM2
from backends.reference.weights import load_weights, moved
from bench.lab import apart, batching, first_token, latent, paging, speculation, weights
from bench.lab.types import Figure, Lab, Theme
from bench.result import RESULTS, ROOT, Goal, commit, write_result

PAGE: Final = ROOT / "docs" / "lab.md"
RESULT: Final = RESULTS / "engine.json"
TEXT: Final = ROOT / "bench" / "data" / "latin.txt"
END: Final = "<!-- end -->"
_SETTING: Final = ("theme", "device", "threads", "seconds of", "commit")

THEMES: Final = (
    Theme("weights", weights.measure, weights.goals),
    Theme("paging", paging.measure, paging.goals),
    Theme("batching", batching.measure, batching.goals),
    Theme("chunked prefill", batching.measure_chunks, batching.goals_of_chunks),
    Theme("first token", first_token.measure, first_token.goals),
    Theme("speculation", speculation.measure, speculation.goals),
    Theme("latent cache", latent.measure, latent.goals),
    Theme("experts", latent.measure_experts, latent.goals_of_experts),
    Theme("prefill and decode apart", apart.measure, apart.goals),
)
"""In the order of the page."""


def new_lab(model: str, device: str, rounds: int, clock: Callable[[], float]) -> Lab:
    """The model on `device`, its tokenizer, and the text in two halves: one to calibrate on, one to judge by."""
    directory = ensure_model(model)
    text = TEXT.read_text(encoding="utf-8")
    middle = text.index("\n\n", len(text) // 2)
    loaded = moved(load_weights(directory), torch.device(device))
    return Lab(loaded, ModelTokenizer(directory), text[middle:], text[:middle], device, rounds, clock)


def devices() -> list[str]:
    """Where techniques are measured: the CPU, and a GPU that CUDA knows of."""
    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def table(rows: Sequence[Mapping[str, Figure]]) -> Iterator[str]:
    """Lines of Markdown; the columns are those of the first row, without what is the same for all measurements."""
    columns = [name for name in rows[0] if name not in _SETTING or len({row[name] for row in rows}) > 1]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "".join("---|" if isinstance(rows[0][name], str) else "---:|" for name in columns)
    for row in rows:
        yield f"| {' | '.join(cell(row[name]) for name in columns)} |"


def setting(rows: Sequence[Mapping[str, Figure]]) -> str:
    """How a table was measured, where that is the same for all of its rows; else its columns say it."""
    same = {name: rows[0][name] for name in _SETTING if len({row[name] for row in rows}) == 1}
    said = [f"on {same['device']}"] if "device" in same else []
    said += [f"torch's threads: {same['threads']}"] if "threads" in same else []
    said += [f"seconds of {same['seconds of']}"] if "seconds of" in same else []
    return f"*{', '.join(said)}*" if said else ""


def cell(figure: Figure) -> str:
    """A figure as it stands on the page: three digits, `-` where nothing is known."""
    if figure is None:
        return "-"
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if abs(figure) >= 100 or isinstance(figure, int) else f"{figure:.3g}"


def written_into(page: str, rows: Sequence[Mapping[str, Figure]]) -> str:
    """The page with its tables as `rows` say. ValueError where a theme has no marks."""
    for theme in dict.fromkeys(str(row["theme"]) for row in rows):
        begin = f"<!-- made by `make bench-engine`, {theme}: begin -->"
        before, found, rest = page.partition(begin)
        _, end, after = rest.partition(END)
        if not found or not end:
            raise ValueError(f"the page has no marks for {theme}")
        mine = [row for row in rows if row["theme"] == theme]
        lines = "\n".join([*table(mine), "", setting(mine)])
        page = f"{before}{begin}\n\n{lines}\n\n{END}{after}"
    return page


def measured(lab: Lab, themes: Iterable[Theme]) -> tuple[list[Mapping[str, Figure]], list[Goal]]:
    """The rows and the goals of `themes` on one device, printed as they come."""
    rows: list[Mapping[str, Figure]] = []
    goals: list[Goal] = []
    for theme in themes:
        began_s = time.monotonic()
        found = list(theme.measure(lab))
        how: dict[str, Figure] = {
            "theme": theme.name,
            "device": lab.device,
            "threads": torch.get_num_threads(),
            "seconds of": "the processor" if lab.clock is time.process_time else "the wall",
            "commit": commit(),
        }
        mine: list[Mapping[str, Figure]] = [{**how, "technique": row.technique, **row.figures} for row in found]
        print(
            f"\n{theme.name}, on {lab.device}, {time.monotonic() - began_s:.0f} s\n", *table(mine), sep="\n", flush=True
        )
        rows += mine
        if lab.device == "cpu":
            goals += [replace(goal, name=f"{theme.name}: {goal.name}") for goal in theme.goals(found)]
    return rows, goals


def beside(
    rows: Iterable[Mapping[str, Figure]], goals: Iterable[Goal], theme: str
) -> tuple[list[Mapping[str, Figure]], list[Goal]]:
    """The rows and goals of one theme in the place of its former ones, those of others as they were, in order."""
    former = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"rows": [], "goals": []}
    names = [one.name for one in THEMES]
    all_rows = [*(row for row in former["rows"] if row["theme"] != theme), *rows]
    kept = [one for one in former["goals"] if not one["name"].startswith(f"{theme}: ")]
    all_goals = [*(Goal(one["name"], one["value"], one["bound"], one["sense"]) for one in kept), *goals]

    def place(name: object) -> int:
        return names.index(str(name)) if name in names else len(names)

    return sorted(all_rows, key=lambda row: place(row["theme"])), sorted(
        all_goals, key=lambda goal: place(goal.name.partition(": ")[0])
    )


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=SMOLLM2, help="smollm2, or tiny or a directory, of which nothing is written")
    names = [theme.name for theme in THEMES]
    parser.add_argument("--only", metavar="THEME", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--rounds", type=_at_least_one, default=3, help="repetitions of what takes time (default: %(default)s)"
    )
    parser.add_argument("--threads", type=_at_least_one, default=1, help="of torch on the CPU (default: %(default)s)")
    parser.add_argument("--busy", action="store_true", help="the machine has other work: seconds of the processor")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the tables")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    options = _options()
    clock = time.process_time if options.busy else time.perf_counter
    torch.set_num_threads(options.threads)
    if not options.page:
        themes = [theme for theme in THEMES if options.only in (None, theme.name)]
        rows: list[Mapping[str, Figure]] = []
        goals: list[Goal] = []
        for device in devices():
            more_rows, more_goals = measured(new_lab(options.model, device, options.rounds, clock), themes)
            rows += more_rows
            goals += more_goals
        print("", *(goal.text() for goal in goals), sep="\n")
        if options.model != SMOLLM2:
            return
        if options.only is not None:
            rows, goals = beside(rows, goals, options.only)
        print(write_result("engine", rows, goals, ("torch",)))
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    PAGE.write_text(written_into(PAGE.read_text(encoding="utf-8"), result["rows"]), encoding="utf-8")


if __name__ == "__main__":
    main()
