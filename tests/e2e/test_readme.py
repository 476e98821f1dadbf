"""What the README shows is run as it stands."""

import re
from pathlib import Path

from windlass.store.store import Store

README = Path(__file__).parents[2] / "README.md"


async def test_the_readme_s_example_works_pasted(url: str, store: Store) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, str(README), "exec"), names)
    main = names["main"]
    assert callable(main)
    await main(url)
    (job,) = (await store.views.jobs()).jobs
    assert (job.status, job.result) == ("completed", '{"said":"hello"}')
