package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login is what the function as_json of logins.py writes.
type login struct {
	Mechanism      string
	CA             string
	User, Password string
	TokenURL       string `json:"token_url"`
	Certificate    string
}

// token asks the token endpoint (RFC 6749, section 4.4).
func (l login) token(ctx context.Context) (oauth.Auth, error) {
	body := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	asked, err := http.NewRequestWithContext(ctx, http.MethodPost, l.TokenURL, body)
	if err != nil {
		return oauth.Auth{}, err
	}
	asked.SetBasicAuth(l.User, l.Password)
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return oauth.Auth{}, err
	}
	defer answer.Body.Close()
	var given struct {
		AccessToken string `json:"access_token"`
	}
	err = json.NewDecoder(answer.Body).Decode(&given)
	return oauth.Auth{Token: given.AccessToken}, err
}

func (l login) mechanism() sasl.Mechanism {
	switch l.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	default:
		return oauth.Oauth(l.token)
	}
}

// readLogin returns the options for the login in a file.
func readLogin(path string) ([]kgo.Opt, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var l login
	if err := json.Unmarshal(content, &l); err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(l.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if l.Certificate == "" {
		return []kgo.Opt{kgo.DialTLSConfig(config), kgo.SASL(l.mechanism())}, nil
	}
	pair, err := tls.LoadX509KeyPair(l.Certificate, l.Certificate)
	config.Certificates = []tls.Certificate{pair}
	return []kgo.Opt{kgo.DialTLSConfig(config)}, err
}
