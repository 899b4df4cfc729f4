// Package enginetest is for product teams' own tests of what they build on package
// engine, without a database.
//
// [Run] makes one run of a job, as a worker would, and tells how it ended: with the
// payload encoded and decoded, through the middleware, under the job's timeout, with a
// panic caught, and judged by the engine's own code. A [Recorder] stands where code
// takes an [engine.Enqueuer]: it refuses what a client refuses and keeps the rest.
//
// What only a database decides is not here: a transaction that rolls back, a lease that
// another worker took, [engine.Once] and [engine.CompleteTx]. For those, test with an
// engine on a Postgres. The engine has no clock to be set; inside a bubble of
// testing/synctest a run's timeout and waits pass at once.
package enginetest
