"""Looks for folders, and deletes them, wherever Spark can write: through its Java.

Spark's Python has no way to do either. Where Java is out of reach of this process, as with Spark
Connect, nobody knows whether a folder is there.
"""

from pyspark.sql import SparkSession

from chasquimq.errors import ConfigError

# By its whole name: else Java would look for a class `org`, for one `org.apache`, and so on.
_PATH = "org.apache.hadoop.fs.Path"


def is_known_to_be_missing(spark: SparkSession, folder: str) -> bool:
    """Whether a folder is not there; False also if nobody knows.

    Spark takes 60 ms to say so itself, since it makes an error of it.
    """
    java = getattr(spark, "_jvm", None)
    if java is None:
        return False
    path = getattr(java, _PATH)(folder)
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- there is no other
    return not path.getFileSystem(settings).exists(path)


def delete_folder_of(spark: SparkSession, file_url: str) -> None:
    """Delete the folder that a file is in, if it is still there; `ConfigError` if it stays."""
    java = getattr(spark, "_jvm", None)
    if java is None:
        msg = f"{file_url} cannot be deleted: this Spark is not in reach of this process"
        raise ConfigError(msg)
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- there is no other
    folder = getattr(java, _PATH)(java.java.net.URI.create(file_url)).getParent()
    files = folder.getFileSystem(settings)
    if not files.delete(folder, True) and files.exists(folder):  # noqa: FBT003 -- all below it
        msg = f"{folder.toString()} could not be deleted: look who may write there"
        raise ConfigError(msg)
