// Package suites names the package whose own tests `make suites` runs.
package suites

import _ "github.com/twmb/franz-go/pkg/kgo"
