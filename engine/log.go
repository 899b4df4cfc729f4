package engine

// The log messages, so that searches and alerts can rely on them. Which fields
// each has stands in README.md.
const (
	LogJobCreated           = "job created"
	LogJobsCreated          = "jobs created"
	LogJobLocked            = "job locked"
	LogJobStarted           = "job started"
	LogJobCompleted         = "job completed"
	LogJobFailedRetrying    = "job failed, retrying"
	LogJobCrashed           = "job crashed"
	LogJobFailedPermanently = "job failed permanently"
	LogStaleLockRecovered   = "stale lock recovered"
	LogWorkerStarted        = "worker started"
	LogWorkerShuttingDown   = "worker shutting down"
	LogWorkerStopped        = "worker stopped"
	LogStaleWriteRefused    = "stale write refused"
	LogLeaseRenewalFailed   = "lease renewal failed"
	LogJobCancelled         = "job cancelled"
	LogJobStopRequested     = "job stop requested"
	LogJobReplayed          = "job replayed"
	LogJobReplaced          = "job replaced"
	LogOperatorAction       = "operator action"
	LogOperationHalted      = "operation halted"
	LogClockMoved           = "database clock moved"
	LogNotificationsDead    = "notifications do not arrive: jobs are found by polling"
)
