"""The Kotlin client: its tests and example against a real node, its package and its README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.processes import PASSWORD, USER, NodeProcess, environment, serving

CLIENT = ROOT / "clients" / "kotlin"
MVN = shutil.which("mvn")

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(
        MVN is None and os.environ.get("CI") != "true", reason="not installed: maven"
    ),
]


def run(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    ended = subprocess.run(
        words, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def mvn(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    return run("mvn", "--batch-mode", "--no-transfer-progress", *words, cwd=cwd, **more)


@pytest.fixture(scope="module")
def classpath() -> str:
    """Class path of the compiled sources, tests and example."""
    mvn("clean", "test-compile")
    build = CLIENT / "build"
    found = (build / "classpath").read_text(encoding="utf-8").strip()
    return f"{build / 'classes'}:{build / 'test-classes'}:{found}"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with serving(tmp_path / "store") as started:
        yield started


def address(node: NodeProcess) -> str:
    host, port = node.address("wire")
    return f"{host}:{port}"


def test_its_sources_are_clean(classpath: str) -> None:
    mvn("--activate-profiles", "lint", "verify", "-DskipTests")


def test_its_tests_pass(classpath: str, node: NodeProcess) -> None:
    said = mvn(
        "surefire:test",
        STORENODE_ADDRESS=address(node), STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD,
    )  # fmt: skip
    found = re.findall(r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: (\d+)$", said, re.M)
    assert found and int(found[-1][0]) > 60 and found[-1][1] == "0"


def test_its_example_runs(classpath: str, node: NodeProcess) -> None:
    said = run("java", "-cp", classpath, "ShopKt", address(node), USER, PASSWORD, "20")
    assert "<h1>lamp</h1>" in said and said.endswith("\n20 sold\n")


POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>readme</groupId>
  <artifactId>readme</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  {repositories}
  <build>
    <plugins>
      <plugin>
        <groupId>org.jetbrains.kotlin</groupId>
        <artifactId>kotlin-maven-plugin</artifactId>
        <version>{kotlin}</version>
        <executions>
          <execution>
            <id>compile</id>
            <phase>process-sources</phase>
            <goals>
              <goal>compile</goal>
            </goals>
            <configuration>
              <jvmTarget>17</jvmTarget>
              <sourceDirs>
                <sourceDir>src/main/kotlin</sourceDir>
                <sourceDir>src/main/java</sourceDir>
              </sourceDirs>
              <args>
                <arg>-Xplugin=${{settings.localRepository}}/{plugin}</arg>
              </args>
            </configuration>
          </execution>
        </executions>
      </plugin>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""
IMPORTS = """\
import kotlinx.coroutines.withTimeout
import kotlinx.serialization.Contextual
import kotlinx.serialization.Serializable
import storeclient.Code
import storeclient.Database
import storeclient.OutcomeUnknownException
import storeclient.RecordId
import storeclient.RefusedException
import storeclient.isRefused
import storeclient.serialization.encodeValue
import storeclient.serialization.queryAs
import storeclient.serialization.rowsAs
import kotlin.time.Duration.Companion.seconds

"""
SERIALIZATION = """
  <dependency>
    <groupId>org.jetbrains.kotlinx</groupId>
    <artifactId>kotlinx-serialization-core-jvm</artifactId>
    <version>{version}</version>
  </dependency>
</dependencies>"""


def test_the_tour_of_its_readme_runs_in_an_empty_project(
    classpath: str, node: NodeProcess, tmp_path: Path
) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    pom = (CLIENT / "pom.xml").read_text(encoding="utf-8")
    *tour, objects, errors = blocks(page, "kotlin")
    (java,), (repositories,) = blocks(page, "java"), blocks(page, "xml")
    program = (
        "".join(tour).replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    )
    java = java.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    assert len(tour) == 6
    repository, folder = tmp_path / "repository", tmp_path / "project"
    mvn("deploy", "-DskipTests", f"-DaltDeploymentRepository=local::file:{repository}")
    (made,) = repository.glob("storenode/storeclient/*/storeclient-*.pom")
    assert {path.suffix for path in made.parent.iterdir()} >= {".jar", ".pom"}
    kotlin, serialization = (
        re.findall(rf"<{name}.version>(.*)<", pom)[0] for name in ("kotlin", "serialization")
    )
    name = "kotlin-serialization-compiler-plugin-embeddable"
    folder.joinpath("src", "main", "kotlin").mkdir(parents=True)
    folder.joinpath("src", "main", "java").mkdir(parents=True)
    folder.joinpath("src", "main", "kotlin", "Tour.kt").write_text(program)
    folder.joinpath("src", "main", "kotlin", "Parts.kt").write_text(IMPORTS + objects + errors)
    folder.joinpath("src", "main", "java", "Example.java").write_text(java)
    folder.joinpath("pom.xml").write_text(
        POM.format(
            kotlin=kotlin,
            plugin=f"org/jetbrains/kotlin/{name}/{kotlin}/{name}-{kotlin}.jar",
            repositories=repositories.replace("file:/srv/maven", f"file:{repository}").replace(
                "</dependencies>", SERIALIZATION.format(version=serialization)
            ),
        )
    )
    local = f"-Dmaven.repo.local={local_copy(tmp_path)}"
    mvn("compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath", local, cwd=folder)
    found = f"{folder / 'target' / 'classes'}:{(folder / 'classpath').read_text().strip()}"
    assert run("java", "-cp", found, "TourKt").splitlines() == wanted("".join(tour))
    assert run("java", "-cp", found, "Example").splitlines() == wanted(java)


def local_copy(tmp_path: Path) -> Path:
    """Local repository with all of the user's but the client: that comes from the package."""
    copy = tmp_path / "local"
    copy.mkdir()
    for folder in (Path.home() / ".m2" / "repository").iterdir():
        if folder.name != "storenode":
            (copy / folder.name).symlink_to(folder)
    return copy


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def wanted(program: str) -> list[str]:
    return re.findall(r"^\s*// = (.*)$", program, re.MULTILINE)
