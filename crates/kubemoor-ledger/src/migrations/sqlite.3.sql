-- For the rows of one object: there are few, and without an index all rows are read for them.
CREATE INDEX IF NOT EXISTS entries_object ON entries (cluster, object_name);
