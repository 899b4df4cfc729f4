// Package boot opens what a binary needs, in order, and closes it in reverse:
// settings, log, local Postgres, schema, pool, engine, listeners. It owns the
// signals and the time a stop may take.
package boot
