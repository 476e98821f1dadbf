"""A wide job: it asks for four threads and spreads its work over as many as it gets.

Where no worker has four threads it is narrowed to one, and still runs: `ctx.threads` says how many were granted.
"""

from windlass import App, Context

app = App("primes")


@app.job(threads=4, timeout=300)
def count_primes(ctx: Context, below: int) -> dict[str, int]:
    # Pure Python holds the interpreter, so processes; for numpy or I/O the default, threads, is cheaper.
    found = ctx.map_chunks(count, range(2, below), combine=sum, on="processes")
    return {"primes": found, "threads": ctx.threads}


def count(numbers: range) -> int:
    """Travels to another process by its name, so it must be a function of a module."""
    return sum(all(n % divisor for divisor in range(2, int(n**0.5) + 1)) for n in numbers)


def main() -> None:
    with app:
        print(count_primes.enqueue(200_000).result(timeout_s=120))


if __name__ == "__main__":
    main()
