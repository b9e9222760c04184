# An image for jobs on NVIDIA GPUs: as train-cpu.Dockerfile, with JAX's CUDA 13 packages, which bring CUDA, cuDNN and NCCL. The
# host needs NVIDIA's driver (580 or newer) and its container toolkit.
# docker build -t sporax-cuda -f deploy/train-cuda.Dockerfile . && docker run --gpus all --shm-size 1g sporax-cuda info
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY tools/type_stubs tools/type_stubs
RUN pip install --no-cache-dir --prefix=/install '.[cuda,ps,orbax]'

FROM python:3.11-slim
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 HOME=/tmp NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["sporax"]
CMD ["info"]
