// Package engine runs background jobs on PostgreSQL and promises that none is
// lost: an accepted enqueue survives every kill, a crashed worker's jobs start
// again by themselves, a worker that comes back from the dead changes nothing.
//
// # Words
//
// A job is what was asked for. It stands in one place (ready, scheduled, held,
// leased, dead) or has ended, and its place is its state. A claim takes a batch
// of ready jobs and writes one lease for it; the lease's id is the fencing
// token of every job in it, and tokens only rise. A run is one claim of one job,
// and ends once, with an execution row; attempts are the runs that ended in
// the handler. A heartbeat renews leases, the reaper takes back the jobs of
// expired ones. A job that fails too often becomes a dead letter, which an
// operator can replay.
//
// # Use
//
// Describe the arguments as a type with a JobType method, register a [Worker]
// for them, start an [Engine], and enqueue with its [Client]; in a transaction
// of your own with [Client.EnqueueTx], from any language with the SQL function
// enqueue_job. A job runs at least once: [Once] and [CompleteTx] tie its effects
// in the same database to its end. What all handlers need, such as tracing or a
// tenant, is [Middleware].
//
// A job whose run was lost with its process is a suspect. It runs in a child
// process, which is this program started again: its Start runs suspects and never
// returns. So call Start before what a second process of the program must not do,
// or ask [InChild].
//
// # Where to read on
//
// claim.go, lease.go, execute.go, outcome.go and finish.go are a job's way
// through a worker, in this order; isolate.go is a suspect's; reaper.go, promote.go, lead.go and
// retention.go the upkeep. Each has its statements in the file of queries/ that
// bears its name.
package engine
