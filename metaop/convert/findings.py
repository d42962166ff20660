"""What the converter found: one finding per name, and the verdicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum


class Verdict(str, Enum):
    """The result for one name."""

    SAME = "same"  # under the same path, with the same meaning
    CONVERTED = "converted"  # written differently now, with the same meaning
    SEMANTIC = "semantic change"  # works, but means something the hint explains
    UNSUPPORTED = "unsupported"  # marked in the output; raises an error when it runs
    THIRD_PARTY = "unknown third party"  # a package that is not known to work with metaop


@dataclass(frozen=True, order=True)
class Finding:
    """One name at one position. Lines and columns count from 1, as in editors."""

    line: int
    column: int
    name: str
    verdict: Verdict
    hint: str = ""


@dataclass
class FileReport:
    """The findings of one file; `error` says why a file was left alone.

    `texts` are the contents before and after, if the file would change but is not written.
    """

    path: str
    findings: list[Finding] = field(default_factory=list)
    error: str = ""
    changed: bool = False
    texts: tuple[str, str] | None = None

    def count(self, verdict: Verdict) -> int:
        """The number of findings with this verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)

    def as_dictionary(self) -> dict[str, object]:
        """The report as a dictionary for JSON."""
        findings = [
            {**asdict(finding), "verdict": finding.verdict.value} for finding in self.findings
        ]
        return {
            "path": self.path,
            "changed": self.changed,
            "error": self.error,
            "findings": findings,
        }
