"""What botocore's errors mean to a store, in words for the user."""

from corpusmill.errors import UsageError

_REASONS = {
    "NoSuchBucket": "the bucket does not exist",
    "InvalidAccessKeyId": "the access key is not known to the service",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "AccessDenied": "access denied",
    "403": "access denied (a wrong key, or no permission)",
    "301": "the bucket is in another region",
    "PermanentRedirect": "the bucket is in another region",
    "ExpiredToken": "the session token has expired",
    "SlowDown": "the service asks for fewer requests",
}


def require_boto3(uri: str) -> None:
    """Raises UsageError that names the extra if boto3 is not installed."""
    try:
        import boto3  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{uri} needs boto3: pip install 'corpusmill[s3]'") from error


def error_code(error: Exception) -> str:
    """The service's error code of a ClientError, else an empty string."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_absent(error: Exception) -> bool:
    """The key is not there (a missing bucket is another matter)."""
    return error_code(error) in ("NoSuchKey", "404")


def is_transport(error: Exception) -> bool:
    """The request may have been carried out although no answer came."""
    from botocore.exceptions import ConnectionError as ConnectError
    from botocore.exceptions import HTTPClientError

    return isinstance(
        error, HTTPClientError | ConnectError
    )  # the last of several attempts may only have failed to connect


def describe(error: Exception) -> str:
    """One line: the code with its meaning, or the error's own words."""
    code = error_code(error)
    if not code:
        return " ".join(str(error).split())
    response = getattr(error, "response", {})
    message = _REASONS.get(code) or response.get("Error", {}).get("Message") or "no reason given"
    return f"{message} ({code})" if code not in message else message
