package auth

import "errors"

// ReadError refuses a body that could not be read to its end: it came too slowly, or
// broke off, which is broken by its code. Neither is the server's fault or passes by
// itself.
func ReadError(err error, broken string) *Refusal {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Refusal{Code: "request-timeout", Detail: "The body did not arrive in time. Nothing was done."}
	}
	return &Refusal{Code: broken, Detail: "The body ended early."}
}
