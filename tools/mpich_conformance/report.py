"""What do results come to?"""

from collections import Counter, defaultdict


def outcome(entry):
    """One word for a test, and the first lines that tell why."""
    is_run = "gpu" in entry or "host" in entry
    if "skipped" in entry and not is_run:
        return "skipped", entry["skipped"]
    if "not built" in entry:
        return "not built", first_error(entry["not built"])
    if not is_run:
        return "not run", ""
    if has_passed(entry):
        # Each test sums up its errors at its end: by one buffer of each rank, and another one at the first.
        is_moved = entry.get("gpu", {}).get("moved", 0) > entry["ranks"] + 1
        return ("passed, on the GPU" if is_moved else "passed, nothing to move"), ""
    if entry.get("bare", {}).get("verdict") != "passed":
        return "the MPI's own", entry["bare"]["words"]
    way = "host" if entry.get("host", {}).get("verdict", "passed") != "passed" else "gpu"
    return f"differs ({way})", f"{entry[way]['verdict']}: {entry[way]['words']}"


def has_passed(entry):
    return all(entry[way]["verdict"] == "passed" for way in ("host", "gpu") if way in entry)


def first_error(text):
    lines = [line for line in text.splitlines() if "error" in line.lower() or "undefined" in line]
    return (lines or text.splitlines() or [""])[0].strip()


OUTCOMES = ("passed, on the GPU", "passed, nothing to move", "differs (host)", "differs (gpu)",
            "the MPI's own", "not built", "skipped", "not run")


def table(results):
    """Markdown: the numbers of each folder, and each test that has not passed."""
    lines = []
    for mpi, tests in results.items():
        counts, others, moved = defaultdict(Counter), [], 0
        for name, entry in tests.items():
            word, why = outcome(entry)
            counts[name.rsplit("/", 1)[0]][word] += 1
            moved += entry.get("gpu", {}).get("moved", 0)
            if not word.startswith("passed"):
                others.append((word, name, why))
        lines += [f"## {mpi}", "", f"{moved} buffers were moved to the GPU.", ""]
        lines += ["| folder | " + " | ".join(OUTCOMES) + " |", "| --- " * (len(OUTCOMES) + 1) + "|"]
        for folder, numbers in counts.items():
            lines.append(f"| {folder} | " + " | ".join(str(numbers[word] or "") for word in OUTCOMES) + " |")
        total = sum(counts.values(), Counter())
        lines.append("| all | " + " | ".join(str(total[word] or "") for word in OUTCOMES) + " |")
        lines += ["", "| test | outcome | why |", "| --- | --- | --- |"]
        for word, name, why in sorted(others):
            lines.append(f"| {name} | {word} | {' '.join(why.split())[:160].replace('|', '/')} |")
        lines.append("")
    return "\n".join(lines)
