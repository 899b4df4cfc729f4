//go:build !faultpoints

// Package fault names the seams of the engine where a killed process is most
// likely to leave something half done: between a commit and what follows from it.
// Without the build tag faultpoints a point is an empty function, which the
// compiler leaves out; with it, the process kills itself at the point that a file
// in its working directory names, so that a test can say exactly where it died.
package fault

// Point does nothing.
func Point(string) {}
