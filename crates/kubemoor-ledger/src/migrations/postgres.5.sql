-- Both read all rows of before, which takes minutes where there are many. Nobody waits for it.
SET LOCAL statement_timeout = 0;

INSERT INTO entry_marks (cluster, same, id)
SELECT cluster, same, id FROM entries WHERE same IS NOT NULL
UNION ALL
SELECT cluster, same, id FROM entries_ahead WHERE same IS NOT NULL
ON CONFLICT DO NOTHING;

ALTER TABLE entries VALIDATE CONSTRAINT entries_until;
