package samplejobs

import (
	"fmt"
	"os"
	"path/filepath"

	gomail "github.com/wneessen/go-mail"
)

// defaultMailDir is where development keeps mail, from the working directory.
const defaultMailDir = ".data/mail"

// writeMail puts m into dir under name and returns the absolute path. A reader
// sees the whole mail or none: it is written beside and renamed. A second try of
// the same job replaces its file.
func writeMail(dir, name string, m *gomail.Msg) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("write mail: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("write mail: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), name+".*.part")
	if err != nil {
		return "", fmt.Errorf("write mail: %w", err)
	}
	_, err = m.WriteTo(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is left of it is of no use
		return "", fmt.Errorf("write mail %s: %w", path, err)
	}
	return path, nil
}
