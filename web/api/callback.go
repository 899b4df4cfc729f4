package api

import (
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// callbackJSON is how a job's end is told. A list has the URL alone. JobID and
// Status are those of the job that tells of it, the last one if there were several
// ends.
type callbackJSON struct {
	URL    string       `json:"url"`
	JobID  *engine.ID   `json:"job_id,omitempty"`
	Status engine.State `json:"status,omitempty"`
	// Error is why the job could not be made, the last time; it is tried again.
	Error    string `json:"error,omitempty"`
	FailedAt stamp  `json:"failed_at,omitzero"`
}

func callbackOf(c *inspect.Callback) *callbackJSON {
	if c == nil {
		return nil
	}
	out := &callbackJSON{URL: c.URL, Status: c.State, Error: c.Error, FailedAt: stamp(c.FailedAt)}
	if c.Made() {
		out.JobID = &c.JobID
	}
	return out
}

// callbackTag is its part of a job's tag: what changes without the job.
func callbackTag(c *inspect.Callback) string {
	if c == nil || !c.Made() && c.Error == "" {
		return ""
	}
	return "-" + c.JobID.String() + string(c.State) + c.FailedAt.UTC().Format("150405.000000")
}
