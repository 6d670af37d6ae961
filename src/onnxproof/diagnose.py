from typing import Any
def diagnose(proof: Any, run: Any) -> Any:
    return proof
