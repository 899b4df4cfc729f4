package api

import (
	"encoding/json"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// JobBody is a job as GET /api/v1/jobs/{id} answers it, for the page that shows the
// same.
func JobBody(j inspect.Job) ([]byte, error) { return json.Marshal(jobOf(j)) }
