package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// problem is what the API answers when it refuses (RFC 9457).
type problem struct {
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	JobID     string `json:"job_id"`
	JobStatus string `json:"job_status"`
	Errors    []struct {
		Pointer   string `json:"pointer"`
		Parameter string `json:"parameter"`
		Code      string `json:"code"`
		Detail    string `json:"detail"`
	} `json:"errors"`
}

// exitsByCode are the codes that do not follow from their status.
var exitsByCode = map[string]int{
	"idempotency-key-reused": exitConflict, // 422, since no state is in the way
	"unique-conflict":        exitConflict,
	"request-timeout":        exitUnreachable,
	"timeout":                exitUnreachable,
	"unavailable":            exitUnreachable,
}

// steps are the next step for each code of the API.
var steps = map[string]string{
	"malformed-json":            "This jobctl and the server may be of different versions: jobctl version, jobctl status",
	"bad-query":                 "Correct the value; --help lists what is taken.",
	"unauthenticated":           "Set JOBCTL_TOKEN, or JOBCTL_TOKEN_FILE to the path of a file that holds the token, or name it in a profile.",
	"forbidden":                 "Use a token with that right: jobctl tokens create makes one.",
	"not-found":                 "Look for it with: jobctl jobs list, jobctl dlq list, jobctl queues list",
	"method-not-allowed":        "This jobctl and the server may be of different versions: jobctl version, jobctl status",
	"not-cancellable":           "See where it stands with: jobctl jobs get %s",
	"not-running":               "See where it stands with: jobctl jobs get %s",
	"not-waiting":               "See where it stands with: jobctl jobs get %s",
	"not-dead":                  "See where it stands with: jobctl jobs get %s",
	"already-replayed":          "Follow it with: jobctl jobs get %s",
	"version-conflict":          "Look at it again, then repeat it: jobctl jobs get %s",
	"operation-state":           "See where it stands with: jobctl operations list",
	"count-moved":               "Look at the new number with --dry-run, then repeat it.",
	"request-timeout":           "Repeat it; if it stays so, the line to the server is too slow for a body of this size.",
	"payload-too-large":         "Store the data elsewhere and put a reference to it into the payload.",
	"unsupported-media-type":    "Something between changes what jobctl sends; ask the server directly with --server.",
	"validation-failed":         "Correct what is named above and repeat it.",
	"schema-violation":          "Correct the payload; jobctl types schema get shows what its type asks for.",
	"idempotency-key-reused":    "Use another --key, or look at the first job with: jobctl jobs get %s",
	"idempotency-key-in-flight": "Repeat it in a second.",
	"unique-conflict":           "Look at the job that holds the key with: jobctl jobs get %s",
	"precondition-required":     "Read the job, and send its ETag as If-Match.",
	"precondition-failed":       "Look at it again, then repeat it: jobctl jobs get %s",
	"rate-limited":              "Repeat it in a minute.",
	"timeout":                   "Repeat it; an enqueue under the same --key is done once. Look at: jobctl status",
	"unavailable":               "Repeat it when the database is back. Look at: jobctl status, jobctl doctor",
	"internal":                  "Look for the request id in the server's log.",
}

// strangeStep is for a code that this version does not know.
const strangeStep = "The server is newer than this jobctl: compare jobctl version and jobctl status."

// refused turns an answer that is not 2xx into an error.
func (c *client) refused(status int, body []byte) error {
	var p problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return c.stranger(status)
	}
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(p.Title, "."))
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		where := e.Pointer
		if where == "" {
			where = e.Parameter
		}
		fmt.Fprintf(&b, "\n  %s: %s", where, e.Detail)
	}
	if status >= 500 && p.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", p.RequestID)
	}
	next, known := steps[p.Code]
	if !known {
		next = strangeStep
	}
	if strings.Contains(next, "%s") {
		next = strings.ReplaceAll(next, "%s", orWord(p.JobID, "ID"))
	}
	return &failure{exitFor(status, p.Code), fmt.Errorf("%s", b.String()), next}
}

func orWord(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func exitFor(status int, code string) int {
	if exit, ok := exitsByCode[code]; ok {
		return exit
	}
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exitConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitNotAllowed
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusBadGateway:
		return exitUnreachable
	}
	return exitFailed
}

// stranger is an answer that no job engine gave: a proxy's page, another program.
func (c *client) stranger(status int) error {
	next := "Check the address given with --server or JOBCTL_SERVER."
	if status >= 300 && status < 400 {
		next = "It points elsewhere: name the final address with --server or JOBCTL_SERVER."
	}
	return &failure{exitFor(status, ""), fmt.Errorf("%s answered %d %s, which is not a job engine's answer", c.base, status, http.StatusText(status)), next}
}
