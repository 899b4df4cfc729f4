package dbtest

import (
	"errors"
	"os"
)

// signalQuit is Kill on Windows: both leave the data to recovery.
var signalQuit = os.Kill

type freeze struct{}

func freezeTree(int) (*freeze, error) {
	return nil, errors.New("processes can't be stopped and continued on Windows")
}

func (*freeze) thaw() error { return nil }

func (*freeze) kill() error { return nil }
