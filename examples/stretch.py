"""A long job that shows how far it is and stops when it is asked to: derive a key by a million rounds of hashing.

`ctx.cancelled` is true once the job was cancelled, ran out of time, or its worker is leaving. Raising Stopped means: as
you asked; so the job is cancelled, timed out, or given back. A handler that never looks has it thrown into it.
"""

import hashlib
import time

from windlass import App, Context, JobCancelled, Stopped

app = App("stretch")
ROUNDS_A_STEP = 20_000


@app.job(timeout=600)
def stretch(ctx: Context, secret: str, rounds: int = 1_000_000) -> str:
    digest = secret.encode()
    for done in range(0, rounds, ROUNDS_A_STEP):
        if ctx.cancelled:
            ctx.log.info("stopping early", done=done)
            raise Stopped
        for _ in range(min(ROUNDS_A_STEP, rounds - done)):
            digest = hashlib.sha256(digest).digest()
        ctx.progress(min(1, (done + ROUNDS_A_STEP) / rounds), f"{done:,} of {rounds:,} rounds")
    return digest.hex()


def main() -> None:
    with app:
        print(stretch.enqueue("correct horse").result(timeout_s=120))
        endless = stretch.enqueue("battery staple", rounds=10**12)
        while endless.status() == "ready":
            time.sleep(0.1)
        print("cancel:", endless.cancel("the example is over"))
        try:
            endless.result(timeout_s=30)
        except JobCancelled as cancelled:
            print(cancelled)


if __name__ == "__main__":
    main()
