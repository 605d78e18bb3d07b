package nft

import (
	"testing"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }
