"""Tables of the bank file: what the first version made, and the migrations since. A new file goes through all of them in order,
an older one through those it lacks, so there is one way to the newest schema. A released migration is never changed; add one."""

APPLICATION_ID = 0x43524C42
"""Marks an SQLite file as a bank ("CRLB")."""

_TABLES = {
    # run_id, embedder, dimensions
    "meta": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    # What entries are filed under. Entries of one task share a key, so its vector is stored once.
    "keys": "id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE, vector BLOB NOT NULL",
    # Never deleted: a retired entry has retired_step.
    "entries": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, fingerprint BLOB NOT NULL, text_vector BLOB,
        key_id INTEGER NOT NULL REFERENCES keys, scope TEXT NOT NULL, created_step INTEGER NOT NULL, retired_step INTEGER,
        generation_id TEXT, retrieved INTEGER NOT NULL DEFAULT 0, shown INTEGER NOT NULL DEFAULT 0,
        successes INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, trained INTEGER NOT NULL DEFAULT 0,
        last_retrieved_step INTEGER NOT NULL DEFAULT -1, last_trained_update INTEGER NOT NULL DEFAULT -1""",
    "lineage": "child INTEGER NOT NULL, parent INTEGER NOT NULL, PRIMARY KEY (child, parent)",
    # Who wrote an entry's text: its author first, then the generations whose duplicates became votes.
    "writers": """
        entry_id INTEGER NOT NULL, operation_id INTEGER NOT NULL, generation_id TEXT NOT NULL,
        PRIMARY KEY (entry_id, operation_id)""",
    # The append-only log. `payload` is JSON with all that `rebuild` needs.
    "operations": "id INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL",
    "touched": "entry_id INTEGER NOT NULL, operation_id INTEGER NOT NULL, PRIMARY KEY (entry_id, operation_id)",
    # prompt_ids, token_ids: int32; logprobs: float32 where that is exact, else float64. Little-endian.
    "generations": """
        id TEXT PRIMARY KEY, model TEXT NOT NULL, version INTEGER NOT NULL, prompt_ids BLOB NOT NULL, token_ids BLOB NOT NULL,
        logprobs BLOB NOT NULL, stop_reason TEXT NOT NULL, temperature REAL NOT NULL""",
    "retrievals": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, entry_id INTEGER NOT NULL, scope TEXT NOT NULL,
        similarity REAL NOT NULL, score REAL NOT NULL""",
    # success: 1, 0, or NULL when the rollout was lost.
    "outcomes": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, entry_id INTEGER NOT NULL, trajectory_id TEXT NOT NULL,
        success INTEGER""",
    "credits": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, generation_id TEXT NOT NULL, value REAL NOT NULL,
        rollouts INTEGER NOT NULL""",
    "trainings": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, generation_id TEXT NOT NULL, update_number INTEGER NOT NULL""",
    "counters": "name TEXT PRIMARY KEY, value INTEGER NOT NULL",
}

_WITHOUT_ROWID = {"meta", "lineage", "writers", "touched", "counters"}

_INDEXES = {
    "entries_live": "entries (scope, key_id, fingerprint) WHERE retired_step IS NULL",
    "entries_live_id": "entries (id) WHERE retired_step IS NULL",
    "entries_generation": "entries (generation_id) WHERE generation_id IS NOT NULL",
    "lineage_parent": "lineage (parent)",
    "operations_step": "operations (step)",
}


def _first() -> list[str]:
    tables = [
        f"CREATE TABLE {name} ({columns}){' WITHOUT ROWID' if name in _WITHOUT_ROWID else ''}" for name, columns in _TABLES.items()
    ]
    return tables + [f"CREATE INDEX {name} ON {target}" for name, target in _INDEXES.items()]


MIGRATIONS = [
    _first(),
    # Which operation was undone by which: at most once each. The log may hold "revert" from here on.
    ["CREATE TABLE reverts (reverted INTEGER PRIMARY KEY, operation_id INTEGER NOT NULL)"],
    # The scope a rollout was played in, NULL where nobody said; rollouts shown an entry in other scopes than its own, with what free ones
    # would have won; the running success of free rollouts, faded (see routing.py).
    [
        "ALTER TABLE outcomes ADD COLUMN scope TEXT",
        """CREATE TABLE routes (
            entry_id INTEGER NOT NULL, scope TEXT NOT NULL, rollouts INTEGER NOT NULL, successes INTEGER NOT NULL,
            expected REAL NOT NULL, PRIMARY KEY (entry_id, scope)) WITHOUT ROWID""",
        "CREATE TABLE free_rates (scope TEXT PRIMARY KEY, won REAL NOT NULL, played REAL NOT NULL) WITHOUT ROWID",
    ],
    # Generations that wrote an entry's text again.
    [
        "ALTER TABLE entries ADD COLUMN votes INTEGER NOT NULL DEFAULT 0",
        """UPDATE entries SET votes = (
            SELECT count(*) FROM touched t JOIN operations o ON o.id = t.operation_id
            WHERE t.entry_id = entries.id AND o.kind = 'vote' AND json_extract(o.payload, '$.entry') = entries.id)""",
    ],
]
"""``MIGRATIONS[v]``: the statements that make schema v + 1 of schema v; 0 is an empty file."""

VERSION = len(MIGRATIONS)
"""Kept as the file's `user_version`."""
