"""CRC-32 (the zlib polynomial), as fast as the machine allows.

Every record is summed twice on its way in, so this is a fifth of a send: isal uses the processor's carry-less
multiplication and takes 0.07 us for 676 bytes where zlib takes 0.33. Same numbers; zlib serves where isal is not installed.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:  # a platform without a wheel
    from zlib import crc32

__all__ = ["crc32"]
