-- What an edit did, as JSON: by that other policies can judge it. Rows of before have none.
ALTER TABLE entries ADD COLUMN facts TEXT;
